"""One module per wire: `chat`, `responses`, `anthropic`, `prompted`, `leaked`. Pure."""
