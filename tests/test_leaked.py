"""Leaked calls: one row or more per family, what is no call, and what no text may do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.dialects.leaked import Leaked, read_leaked, read_text
from toolkit.dialects.react_text import ReActStep, read_react


def _parameters(required: list[str], **properties: Any) -> dict[str, Any]:
    schemas = {
        key: {"type": value} if isinstance(value, str) else value
        for key, value in properties.items()
    }
    return {"type": "object", "properties": schemas, "required": required}


TOOLS = {
    "tide": _parameters(["harbour"], harbour="string", unit={"enum": ["m", "ft"]}),
    "now": _parameters([]),
    "book": _parameters(
        ["guests"],
        guests="integer",
        under="string",
        outdoor="boolean",
        budget="number",
        until={"anyOf": [{"type": "string"}, {"type": "null"}]},
        wishes={"$ref": "#/$defs/Wishes"},
        dishes="array",
        where={"type": ["string", "object"]},
    )
    | {"$defs": {"Wishes": {"type": "object"}}},
    "write": _parameters(["path", "text"], path="string", text="string"),
    "log.append": _parameters(["line"], line="string"),
    "crew-list": _parameters([], ship="string"),
    "mail": _parameters([], **{"from": "string", "import": "integer"}),
}

TIDE = [("tide", {"harbour": "Brest"})]
TWO = [("tide", {"harbour": "Brést"}), ("now", {})]
BOOK = [
    (
        "book",
        {
            "guests": 4,
            "under": "0042",
            "outdoor": False,
            "budget": 12.5,
            "wishes": {"quiet": True},
        },
    )
]
WRITE = [("write", {"path": "a\\b.txt", "text": 'one\n\ttwo "2" {three}'})]

CALLS: list[tuple[str, str, list[tuple[str, Any]], str, str]] = [
    (
        "hermes",
        'I look.\n<tool_call>\n{"name": "tide", "arguments": {"harbour": "Brést"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        TWO,
        "I look.",
        "",
    ),
    (
        "hermes, after thoughts that name a call",
        '<think>\n<tool_call>{"name": "now"}</tool_call>?\n</think>\n<tool_call>{"name": "tide", "arguments": '
        '"{\\"harbour\\": \\"Brest\\"}"}</tool_call>',
        TIDE,
        "",
        '<tool_call>{"name": "now"}</tool_call>?',
    ),
    (
        "hermes, its own marks in an argument",
        '<tool_call>\n{"name": "tide", "arguments": {"harbour": "a </tool_call> b <think>"}}\n</tool_call>',
        [("tide", {"harbour": "a </tool_call> b <think>"})],
        "",
        "",
    ),
    (
        "hermes, a line break in a string",
        '<tool_call>{"name": "tide", "arguments": {"harbour": "a\nb"}}</tool_call>',
        [("tide", {"harbour": "a\nb"})],
        "",
        "",
    ),
    (
        "hermes, never closed",
        '<tool_call>{"name": "tide", "arguments": {"harbour": "Brest"}}',
        TIDE,
        "",
        "",
    ),
    (
        "hermes, opener missing",
        '</think>\n{"name": "tide", "arguments": {"harbour": "Brest"}}\n</tool_call>',
        TIDE,
        "",
        "",
    ),
    (
        "hermes, arguments in Python",
        "<tool_call>{'name': 'tide', 'arguments': {'harbour': 'Brest'}}</tool_call>",
        TIDE,
        "",
        "",
    ),
    (
        "hermes, nested as in the API",
        '<tool_call>{"type": "function", "function": {"name": "now"}}</tool_call>',
        [("now", {})],
        "",
        "",
    ),
    (
        "qwen xml",
        "<tool_call>\n<function=book>\n<parameter=guests>\n4\n</parameter>\n<parameter=under>\n0042\n</parameter>\n"
        "<parameter=outdoor>\nFalse\n</parameter>\n<parameter=budget>\n12.5\n</parameter>\n"
        '<parameter=wishes>\n{"quiet": true}\n</parameter>\n</function>\n</tool_call>',
        BOOK,
        "",
        "",
    ),
    (
        "qwen xml, white space and tags in a value",
        "<function=write>\n<parameter=path>\nx\n</parameter>\n<parameter=text>\n  </parameter> <function=now>\n\n"
        "</parameter>\n</function>\n</tool_call>",
        [("write", {"path": "x", "text": "  </parameter> <function=now>\n"})],
        "",
        "",
    ),
    (
        "qwen xml, an end tag missing",
        "<tool_call>\n<function=write>\n<parameter=path>\nx\n<parameter=text>\ny\n</parameter>\n</function>\n</tool_call>",
        [("write", {"path": "x", "text": "y"})],
        "",
        "",
    ),
    (
        "qwen xml, words for null, lists in Python",
        "<tool_call>\n<function=book>\n<parameter=until>\nNone\n</parameter>\n<parameter=dishes>\n['soup', True]\n"
        '</parameter>\n<parameter=where>\n{"hall": 2}\n</parameter>\n</function>\n</tool_call>',
        [("book", {"until": None, "dishes": ["soup", True], "where": {"hall": 2}})],
        "",
        "",
    ),
    (
        "seed",
        "Well.\n<seed:tool_call>\n<function=tide>\n<parameter=harbour>Brest</parameter>\n</function>\n</seed:tool_call>",
        TIDE,
        "Well.",
        "",
    ),
    (
        "mistral array",
        '[TOOL_CALLS] [{"arguments": {"harbour": "Brest"}, "name": "tide"}]',
        TIDE,
        "",
        "",
    ),
    (
        "mistral name and arguments",
        'One moment.[TOOL_CALLS]tide[ARGS]{"harbour": "Brést"}[TOOL_CALLS]now[CALL_ID]a1[ARGS]{}',
        TWO,
        "One moment.",
        "",
    ),
    (
        "mistral, thoughts",
        '[THINK][TOOL_CALLS]now[ARGS]{}?[/THINK][TOOL_CALLS]tide{"harbour": "Brest"}',
        TIDE,
        "",
        "[TOOL_CALLS]now[ARGS]{}?",
    ),
    (
        "llama json",
        '{"name": "tide", "parameters": {"harbour": "Brést"}}; {"name": "now", "parameters": {}}',
        TWO,
        "",
        "",
    ),
    (
        "bare json, arguments left out",
        '{"name": "tide", "arguments": {"harbour": "Brést"}}\n{"name": "now"}',
        TWO,
        "",
        "",
    ),
    (
        "llama python tag",
        'So. <|python_tag|>{"type": "function", "name": "tide", "parameters": {"harbour": "Brest"}}<|eom_id|>',
        TIDE,
        "So.",
        "",
    ),
    ("llama builtin", '<|python_tag|>tide.call(harbour="Brest")', TIDE, "", ""),
    ("pythonic", "[tide(harbour='Brést'), now()]", TWO, "", ""),
    (
        "pythonic, values",
        "[book(guests=-4, wishes={'a': [None, true]}, until='it\\'s \\d'), "
        "log.append(line=\"x\"), crew-list(ship='Ra')]",
        [
            (
                "book",
                {"guests": -4, "wishes": {"a": [None, True]}, "until": "it's \\d"},
            ),
            ("log.append", {"line": "x"}),
            ("crew-list", {"ship": "Ra"}),
        ],
        "",
        "",
    ),
    (
        "pythonic, one a line, values of Python's own",
        "<function_calls>tide(harbour='\U0001fae8 ' 'x')\nbook(dishes=(1, 2))</function_calls>",
        [("tide", {"harbour": "\U0001fae8 x"}), ("book", {"dishes": [1, 2]})],
        "",
        "",
    ),
    (
        "pythonic, beside what is no call",
        "[other(x=b'1'), tide(harbour='Brest')]",
        TIDE,
        "",
        "",
    ),
    ("llama 4", "<|python_start|>[tide(harbour='Brest')]<|python_end|>", TIDE, "", ""),
    (
        "lfm2",
        "<|tool_call_start|>[tide(harbour='Brest')]<|tool_call_end|>\nLooking.",
        TIDE,
        "Looking.",
        "",
    ),
    (
        "lfm2, its end mark in an argument",
        "<|tool_call_start|>[tide(harbour='a <|tool_call_end|> b')]<|tool_call_end|>",
        [("tide", {"harbour": "a <|tool_call_end|> b"})],
        "",
        "",
    ),
    (
        "olmo3",
        "<function_calls>tide(harbour='Brést')\nnow()</function_calls>",
        TWO,
        "",
        "",
    ),
    (
        "deepseek v3",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tide\n```json\n{"harbour": "Brést"}\n```'
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        TWO,
        "",
        "",
    ),
    (
        "deepseek v3.1",
        'Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tide<｜tool▁sep｜>{"harbour": "Brest"}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        TIDE,
        "Yes.",
        "",
    ),
    (
        "deepseek v3.1, a comma too much",
        '<｜tool▁call▁begin｜>tide<｜tool▁sep｜>{"harbour": "Brest",}<｜tool▁call▁end｜>',
        TIDE,
        "",
        "",
    ),
    (
        "deepseek dsml",
        'Yes.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="write">\n<｜DSML｜parameter name="path" string="true">'
        'a\\b.txt</｜DSML｜parameter>\n<｜DSML｜parameter name="text" string="true">one\n\ttwo "2" {three}'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        WRITE,
        "Yes.",
        "",
    ),
    (
        "deepseek dsml, without its opener, with plain bars",
        '<|DSML|invoke name="book">\n<|DSML|parameter name="guests" string="false">4</|DSML|parameter>\n'
        '<|DSML|parameter name="under" string="true">4</|DSML|parameter>\n</|DSML|invoke>\n</|DSML|tool_calls>',
        [("book", {"guests": 4, "under": "4"})],
        "",
        "",
    ),
    (
        "deepseek dsml, later spellings",
        '<｜DSML｜ calls>\n<｜DSML｜ invoke name="now"/>\n<｜DSML｜ invoke name="tide">\n'
        '<｜DSML｜ parameter name="harbour" string="true"> x\n</｜DSML｜ parameter>\n'
        "</｜DSML｜ invoke>\n</｜DSML｜ calls>",
        [("now", {}), ("tide", {"harbour": " x\n"})],
        "",
        "",
    ),
    (
        "glm",
        "\n<think>Two.</think>\n<tool_call>tide\n<arg_key>harbour</arg_key>\n<arg_value>Brést</arg_value>\n</tool_call>\n"
        "<tool_call>now\n</tool_call>",
        TWO,
        "",
        "Two.",
    ),
    (
        "glm, compact",
        "Both.<tool_call>book<arg_key>guests</arg_key><arg_value>4</arg_value><arg_key>under</arg_key>"
        "<arg_value>4</arg_value></tool_call>",
        [("book", {"guests": 4, "under": "4"})],
        "Both.",
        "",
    ),
    (
        "glm, an end tag missing",
        "<tool_call>book\n<arg_key>under</arg_key>\n<arg_value>4\n<arg_key>guests</arg_key>\n<arg_value>4</arg_value>\n"
        "</tool_call>",
        [("book", {"under": "4", "guests": 4})],
        "",
        "",
    ),
    (
        "kimi k2",
        "Yes.<|tool_calls_section_begin|><|tool_call_begin|>functions.tide:0<|tool_call_argument_begin|>"
        '{"harbour": "Brést"}<|tool_call_end|><|tool_call_begin|>now:1 <|tool_call_argument_begin|>{}<|tool_call_end|>'
        "<|tool_calls_section_end|>",
        TWO,
        "Yes.",
        "",
    ),
    (
        "gpt-oss",
        "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.tide <|constrain|>json<|message|>"
        '{"harbour": "Brést"}<|call|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}',
        TWO,
        "I look.",
        "Two.",
    ),
    (
        "gpt-oss, no body",
        "<|channel|>commentary to=functions.now<|message|><|call|>",
        [("now", {})],
        "",
        "",
    ),
    (
        "gpt-oss, without its tokens",
        'assistantcommentary to=functions.tide json{"harbour": "Brest"}',
        TIDE,
        "",
        "",
    ),
    (
        "gemma 4",
        '<|channel>thought\nHm.\n<channel|><|tool_call>call:book{guests:4,under:<|"|>0042<|"|>,outdoor:false,budget:12.5,'
        "wishes:{quiet:true}}<tool_call|>I look.",
        BOOK,
        "I look.",
        "Hm.",
    ),
    (
        "gemma 4, raw text in a string",
        '<|tool_call>call:write{path:<|"|>a\\b.txt<|"|>,text:<|"|>one\n\ttwo "2" {three}<|"|>}<tool_call|>',
        WRITE,
        "",
        "",
    ),
    (
        "granite 3",
        'Yes.\n<|tool_call|> [{"name": "tide", "arguments": {"harbour": "Brést"}}, {"name": "now", "arguments": {}}]',
        TWO,
        "Yes.",
        "",
    ),
    (
        "granite 3.1",
        '<tool_call> [{"name": "tide", "arguments": {"harbour": "Brest"}}]',
        TIDE,
        "",
        "",
    ),
    (
        "granite 20b",
        'Yes.\n<function_call> {"name": "tide", "arguments": {"harbour": "Brest"}}',
        TIDE,
        "Yes.",
        "",
    ),
    (
        "phi 4 mini",
        'Yes.\nfunctools[{"name": "tide", "arguments": {"harbour": "Brest"}}]\nMore?',
        TIDE,
        "Yes.\n\nMore?",
        "",
    ),
    ("functionary 3.1", '<function=tide>{"harbour": "Brest"}</function>', TIDE, "", ""),
    (
        "functionary 3.2",
        'all\nI look.>>>tide\n{"harbour": "Brést"}>>>now\n{}',
        TWO,
        "I look.",
        "",
    ),
    (
        "functionary 3.2, a token at its end",
        'tide\n{"harbour": "Brest"}<|eot_id|>',
        TIDE,
        "",
        "",
    ),
    (
        "internlm 2",
        '<|action_start|><|plugin|>{"name": "tide", "parameters": {"harbour": "Brest"}}<|action_end|>',
        TIDE,
        "",
        "",
    ),
    (
        "xlam",
        '<think>Hm.</think>[{"name": "tide", "arguments": {"harbour": "Brest"}}]',
        TIDE,
        "",
        "Hm.",
    ),
    (
        "xlam, fenced",
        'I look.\n```json\n[{"name": "tide", "arguments": {"harbour": "Brest"}}]\n```',
        TIDE,
        "I look.",
        "",
    ),
    (
        "a mark in a fence of its own",
        '```\n<tool_call>{"name": "now"}</tool_call>\n```',
        [("now", {})],
        "",
        "",
    ),
    (
        "hunyuan",
        'Yes.<tool_calls>[{"name": "tide", "arguments": {"harbour": "Brest"}}]</tool_calls>',
        TIDE,
        "Yes.",
        "",
    ),
    (
        "minimax",
        'Yes.<minimax:tool_call><invoke name="tide"><parameter name="harbour">Brést</parameter></invoke>'
        '<invoke name="now"></invoke></minimax:tool_call>',
        TWO,
        "Yes.",
        "",
    ),
    (
        "command r7b",
        '<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "tide", '
        '"parameters": {"harbour": "Brest"}}\n]<|END_ACTION|>',
        TIDE,
        "",
        "Hm.",
    ),
    (
        "react",
        'Thought: Hm.\nAction: tide\nAction Input: {"harbour": "Brest"}',
        TIDE,
        "",
        "Hm.",
    ),
    (
        "react, nothing given",
        "Action: crew-list\nAction Input: {}\nObservation: none",
        [("crew-list", {})],
        "",
        "",
    ),
    (
        "react, text for the one parameter",
        "Action: `tide`\nAction Input: Brest",
        TIDE,
        "",
        "",
    ),
    (
        "react, an observation made up",
        'Thought: Hm.\nAction: tide\nAction Input: {"harbour": "Brest"}\nObservation: high\nFinal Answer: high',
        TIDE,
        "",
        "Hm.",
    ),
    (
        "react, in one blob",
        'Thought: Hm.\nAction:\n```json\n{"action": "tide", "action_input": {"harbour": "Brest"}}\n```',
        TIDE,
        "",
        "Hm.",
    ),
    (
        "thoughts that never end, then a call",
        '<think>Hm.\n<tool_call>{"name": "now"}</tool_call>',
        [("now", {})],
        "",
        "Hm.",
    ),
    (
        "thoughts after text",
        'So.\n<think>Hm.</think>\n<tool_call>{"name": "now"}</tool_call>',
        [("now", {})],
        "So.",
        "Hm.",
    ),
    (
        "words without a space on both sides",
        'so<tool_call>{"name": "now"}</tool_call>far',
        [("now", {})],
        "sofar",
        "",
    ),
    (
        "an open sentence, then nothing",
        'I look at <tool_call>{"name": "now"}</tool_call>',
        [("now", {})],
        "I look at",
        "",
    ),
    (
        "a good call, then a cut one",
        '<tool_call>{"name": "now"}</tool_call>\n<tool_call>{"name": "tide", "arg',
        [("now", {}), ("tide", '<tool_call>{"name": "tide", "arg')],
        "",
        "",
    ),
    (
        "a broken call between good ones",
        '<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "tide", "arguments": {"harbour": "B"</tool_call>'
        '<tool_call>{"name": "crew-list"}</tool_call>',
        [
            ("now", {}),
            (
                "tide",
                '<tool_call>{"name": "tide", "arguments": {"harbour": "B"</tool_call>',
            ),
            ("crew-list", {}),
        ],
        "",
        "",
    ),
    (
        "a broken call before a good one, in tags",
        "<tool_call>tide<arg_key>harbour</arg_key><arg_value>B</tool_call><tool_call>now</tool_call>",
        [
            (
                "tide",
                "<tool_call>tide<arg_key>harbour</arg_key><arg_value>B</tool_call>",
            ),
            ("now", {}),
        ],
        "",
        "",
    ),
    (
        "arguments without names beside a good call",
        "[tide('Brest'), now()]",
        [("tide", "tide('Brest')"), ("now", {})],
        "",
        "",
    ),
    (
        "arguments that are no object beside a good call",
        '[TOOL_CALLS][{"name": "tide", "arguments": "Brest"}, {"name": "now", "arguments": {}}]',
        [("tide", "Brest"), ("now", {})],
        "",
        "",
    ),
    (
        "a parameter whose end tag is missing on the line",
        "<function=tide><parameter=harbour>Brest<parameter=unit>ft</parameter></function>",
        [("tide", {"harbour": "Brest", "unit": "ft"})],
        "",
        "",
    ),
    (
        "the same in GLM's tags",
        "<tool_call>tide<arg_key>harbour</arg_key><arg_value>Brest<arg_key>unit</arg_key><arg_value>ft</arg_value></tool_call>",
        [("tide", {"harbour": "Brest", "unit": "ft"})],
        "",
        "",
    ),
    (
        "the same in MiniMax' tags, three parameters",
        '<minimax:tool_call><invoke name="book"><parameter name="guests">4<parameter name="under">0042'
        '<parameter name="outdoor">true</parameter></invoke></minimax:tool_call>',
        [("book", {"guests": 4, "under": "0042", "outdoor": True})],
        "",
        "",
    ),
    (
        "a tag that is no parameter of the tool is part of the value",
        "<function=tide><parameter=harbour>a <parameter=no> b</parameter></function>",
        [("tide", {"harbour": "a <parameter=no> b"})],
        "",
        "",
    ),
    (
        "functiongemma",
        '<start_function_call>call:book{guests:4,under:<escape>a, "b" {c}<escape>}<end_function_call>',
        [("book", {"guests": 4, "under": 'a, "b" {c}'})],
        "",
        "",
    ),
    (
        "minimax m1",
        'Yes.\n<tool_calls>\n{"name": "tide", "arguments": {"harbour": "Brést"}}\n{"name": "now", "arguments": {}}\n'
        "</tool_calls>",
        TWO,
        "Yes.",
        "",
    ),
    (
        "minicpm 5",
        '<function name="book"><param name="guests">4</param><param name="under"><![CDATA[a<b]]></param></function>',
        [("book", {"guests": 4, "under": "a<b"})],
        "",
        "",
    ),
    (
        "nemotron nano 2",
        '<TOOLCALL>[{"name": "tide", "arguments": {"harbour": "Brest"}}]</TOOLCALL>',
        TIDE,
        "",
        "",
    ),
    (
        "gigachat 3",
        'Yes.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "tide", "arguments": {"harbour": "Brest"}}'
        "<|message_sep|>",
        TIDE,
        "Yes.",
        "",
    ),
    (
        "gigachat 3.1",
        '<|function_call|>{"name": "tide", "arguments": {"harbour": "Brest"}}',
        TIDE,
        "",
        "",
    ),
    (
        "apertus",
        '<|tools_prefix|>[{"tide": {"harbour": "Brést"}}, {"now": {}}]<|tools_suffix|>',
        TWO,
        "",
        "",
    ),
    (
        "special tokens, then a word in lower case",
        "<|tool_call_start|>[tide(harbour='Brest')]<|tool_call_end|> let me see",
        TIDE,
        "let me see",
        "",
    ),
    (
        "pythonic, words of Python as names",
        "[mail(from='a, in=b', import=1)]",
        [("mail", {"from": "a, in=b", "import": 1})],
        "",
        "",
    ),
    (
        "command r+",
        'I plan.\nAction: ```json\n[{"tool_name": "tide", "parameters": {"harbour": "Brest"}}]\n```',
        TIDE,
        "I plan.",
        "",
    ),
    (
        "gpt-oss, a channel named once more",
        '<|channel|>commentary to=functions.tide <|constrain|>json<|message|>{"harbour": "Brest"}<|call|>commentary',
        TIDE,
        "",
        "",
    ),
    (
        "gpt-oss, the recipient before the channel",
        '<|start|>assistant to=tide<|channel|>commentary json<|message|>{"harbour": "Brest"}<|call|>',
        TIDE,
        "",
        "",
    ),
    (
        "gpt-oss, thoughts without tokens",
        'analysisHm.assistantcommentary to=functions.tide json{"harbour": "Brest"}',
        TIDE,
        "",
        "Hm.",
    ),
]


@pytest.mark.parametrize(
    ("text", "calls", "visible", "thought"),
    [pytest.param(*row[1:], id=row[0]) for row in CALLS],
)
def test_a_call_in_the_form_of_its_family_is_read(
    text: str, calls: list[tuple[str, Any]], visible: str, thought: str
) -> None:
    assert read_leaked(text, TOOLS) == Leaked(tuple(calls), visible, thought)


@pytest.mark.parametrize(
    "text", [pytest.param(row[1], id=row[0]) for row in CALLS if "other(" not in row[1]]
)
def test_calls_of_tools_that_are_not_given_are_no_calls(text: str) -> None:
    assert read_leaked(text, {"other": _parameters([])}) is None


@pytest.mark.parametrize(
    ("text", "calls", "thought"),
    [
        ('Hm.\n</think>\n<tool_call>{"name": "now"}</tool_call>', [("now", {})], "Hm."),
        ('now?<tool_call>{"name": "now"}</tool_call>', [("now", {})], "now?"),
        (
            '<tool_call>{"name": "now"}</tool_call> or not?</think>[tide(harbour="Brest")]',
            TIDE,
            None,
        ),
    ],
    ids=["closed", "never closed, ends in a call", "named on the way"],
)
def test_thoughts_that_the_prompt_had_opened(
    text: str, calls: list[tuple[str, Any]], thought: str | None
) -> None:
    leaked = read_leaked(text, TOOLS, reasoning_prefilled=True)
    assert leaked is not None
    assert (list(leaked.calls), leaked.text) == (calls, "")
    assert thought is None or leaked.reasoning == thought


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        pytest.param(row[1], row[2], id=row[0])
        for row in CALLS
        if not row[0].startswith("react, text") and "now" not in row[4]
    ],
)
def test_a_cut_text_holds_no_other_calls_than_the_whole(
    text: str, calls: list[tuple[str, Any]]
) -> None:
    for end in range(len(text)):
        leaked = read_leaked(text[:end], TOOLS)
        # The last one may be there with its source in place of arguments.
        cut_calls = _read_calls(leaked.calls if leaked else ())
        pairs = zip(cut_calls, _read_calls(calls), strict=False)
        assert all(cut_call == call for cut_call, call in pairs)


def _read_calls(calls: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [call for call in calls if isinstance(call[1], dict)]


CUT_OR_BROKEN = {
    "hermes, cut": '<tool_call>\n{"name": "tide", "arguments": {"harbour": "Bre',
    "hermes, a brace missing": '<tool_call>\n{"name": "now", "arguments": {"a": 1}',
    "hermes, no json": "<tool_call>tide, please</tool_call>",
    "hermes, cut in thoughts": '<think>\nthen <tool_call>{"name": "now"}</tool_call>, or',
    "hermes, thoughts that go on": '<think>\nHm.\n<tool_call>{"name": "now"}</tool_call>\nOr so?',
    "qwen xml, cut": "<tool_call>\n<function=write>\n<parameter=path>\n/x\n</parameter>\n<parameter=text>\nrm -rf /",
    "qwen xml, cut between parameters": "<tool_call>\n<function=write>\n<parameter=path>\n/x\n</parameter>\n",
    "mistral, cut": '[TOOL_CALLS]tide[ARGS]{"harbour": "',
    "mistral, no arguments yet": "[TOOL_CALLS]tide",
    "mistral array, no json": "[TOOL_CALLS] nothing of the kind",
    "llama, cut": '{"name": "tide", "parameters": {"harbour": "Br',
    "pythonic, code": "[tide(harbour=__import__('os').getcwd())]",
    "pythonic, without names": "[tide('Brest')]",
    "pythonic, cut": "<|tool_call_start|>[tide(harbour='Bre",
    "deepseek, a closing brace missing": '<｜tool▁call▁begin｜>tide<｜tool▁sep｜>{"a": {"b": 1}<｜tool▁call▁end｜>',
    "deepseek, a brace missing": (
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>tide\n```json\n{"harbour": "x"\n```<｜tool▁call▁end｜>'
    ),
    "deepseek dsml, not all that is required": '<｜DSML｜invoke name="tide">\n</｜DSML｜invoke>',
    "glm, cut at its own mark": "<tool_call>tide<arg_key>harbour</arg_key><arg_value>a <tool_call> b </tool_call>",
    "a parameter opened within another, one end tag too many": (
        "<function=tide><parameter=harbour>a <parameter=unit>ft</parameter> b</parameter></function>"
    ),
    "glm, cut": "<tool_call>tide\n<arg_key>harbour</arg_key>\n<arg_value>Bre",
    "gpt-oss, cut": '<|channel|>commentary to=functions.tide <|constrain|>json<|message|>{"harbour": "Bre',
    "gpt-oss, a tool of its own": "<|channel|>commentary to=python <|constrain|>code<|message|>print(1)",
    "gemma, cut": '<|tool_call>call:tide{harbour:<|"|>Bre',
    "granite, no list": '<|tool_call|> {"name": "now", "arguments": {}}',
    "phi, arguments no object": 'functools[{"name": "tide", "arguments": "Brest"}]',
    "phi, no arguments": 'functools[{"name": "now"}]',
    "a call within a cut one, in tags": "<function=write>\n<parameter=text>\n<function=now>\n</function>\nmore",
    "a call within a cut one, in JSON": '<tool_call>{"name": "write", "arguments": {"a": "<tool_call>now</tool_call>',
    "a call within a cut one, in Gemma's strings": '<|tool_call>call:write{text:<|"|>a\n<tool_call>now</tool_call>\nb',
    "a name that is a number": '<function_call> {"name": 123}',
    "react, two labels on a line": "Thought: t\nAction: tide Final Answer:\nAction Input: x",
}


@pytest.mark.parametrize("text", CUT_OR_BROKEN.values(), ids=CUT_OR_BROKEN.keys())
def test_what_is_cut_or_broken_is_no_call(text: str) -> None:
    assert read_leaked(text, TOOLS) is None


NO_CALLS = {
    "plain": "The tide is high at noon. Shall I book a table (for 4) now?",
    "a list in markdown": "[1] See the manual (page 3).",
    "links": "See [now](https://a.example/now) and [tide(1)](man:tide).",
    "data that has a name": '{"name": "tide", "height": 3}',
    "data that has only a name": '{"name": "now"}',
    "a definition": '{"name": "tide", "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}}}',
    "definitions": '[{"type": "function", "function": {"name": "now", "description": "…", "parameters": {}}}]',
    "bare json with prose": 'I would send {"name": "tide", "arguments": {"harbour": "Brest"}} to the server.',
    "bare json, one name not known": '{"name": "tide", "arguments": {"harbour": "x"}}\n{"name": "x", "arguments": {}}',
    "an invoke that is only mentioned": 'Use <｜DSML｜invoke name="tide"> to call it.',
    "marks only": "Wrap the call in <tool_call> and </tool_call>; Mistral writes [TOOL_CALLS] before it.",
    "in a sentence": 'Hermes writes <tool_call>{"name": "now", "arguments": {}}</tool_call> and waits.',
    "in quotes": 'It answered "<tool_call>{"name": "now", "arguments": {}}</tool_call>" at once.',
    "in code": 'A call is `<tool_call>{"name": "now", "arguments": {}}</tool_call>`.',
    "in code with more": 'The log: `In. <tool_call>{"name": "now"}</tool_call> Out.`',
    "a token quoted": "Gemma writes <|tool_call>call:now{}<tool_call|> and stops.",
    "in a sentence, over lines": 'First comes <tool_call>{"name": "now", "arguments": {}}</tool_call>\nThen a result.',
    "begins a sentence": '<tool_call>{"name": "now", "arguments": {}}</tool_call> is how it calls.',
    "in a list": '- Hermes: <tool_call>{"name": "now"}</tool_call>\n- Mistral: [TOOL_CALLS]now[ARGS]{}\n',
    "begins a sentence, over lines": '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call> is how it calls.',
    "several in a sentence": "The model writes [TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[ARGS]{} and waits.",
    "several in brackets": "The calls (<function=now>{}</function><function=now>{}</function>) are odd.",
    "a placeholder": "<function=tide>{...}</function>",
    "announced": 'A call looks like this:\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n',
    "announced, two": "Example in the GLM format:\n<tool_call>now</tool_call>\nor\n<tool_call>now</tool_call>",
    "indented as code": "With XML:\n\n    <tool_call>\n    <function=now>\n    </function>\n    </tool_call>\n",
    "announced, fenced at the end": 'For example:\n```json\n{"name": "now", "arguments": {}}\n```',
    "python": "Write it so:\n\n```python\ntide(harbour='Brest')\n[now()]\n```\n\nThat is all.",
    "a session": ">>> tide(harbour='Brest')\n3\n>>> now()\n12",
    "react, an example in the answer": 'Final Answer: Write\n```\nAction: tide\nAction Input: {"harbour": "x"}\n```',
    "react, explained": 'Action: tide\nAction Input: {"harbour": "x"}\nSo it calls the tool.',
    "react, announced": 'An example:\n\nThought: x\nAction: tide\nAction Input: {"harbour": "x"}',
    "react, in a fence of its own": "The log:\n```\nThought: x\nAction: tide\nAction Input: Brest\n```",
    "react, in a manual": (
        "The loop:\n\n```\nThought: …\nAction: tide\nAction Input: Brest\n```\n\nThen the tool runs."
    ),
    "hermes, in a manual": (
        "## Hermes\n\nThe model answers with\n\n```xml\n<tool_call>\n"
        '{"name": "tide", "arguments": {"harbour": "Brest"}}\n</tool_call>\n```\n\nand the server parses it.'
    ),
    "mistral, in a manual": (
        "Mistral's tokens, version by version:\n\n"
        '- v3: `[TOOL_CALLS] [{"name": "now", "arguments": {}}]`\n- v11: `[TOOL_CALLS]now[ARGS]{}`\n'
    ),
    "qwen xml, in a manual": (
        "Qwen3-Coder writes\n```\n<tool_call>\n<function=tide>\n<parameter=harbour>\nBrest\n</parameter>\n"
        "</function>\n</tool_call>\n```\ninstead of JSON."
    ),
    "llama, in a manual": (
        'Llama 3.1 answers `{"name": "now", "parameters": {}}`, Llama 4 answers `[now()]`.\n\n'
        '```\n<|python_tag|>tide.call(harbour="Brest")\n```\nis kept for the builtin tools.'
    ),
    "deepseek, in a manual": (
        "```\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n```\nis what V3 writes."
    ),
    "gpt-oss, in a manual": (
        "In Harmony a call names its recipient, e.g. `<|channel|>commentary to=functions.now <|constrain|>json"
        "<|message|>{}<|call|>`, and ends in `<|call|>`."
    ),
    "kimi, in a manual": (
        "> `<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>`\n\nThe id counts calls."
    ),
    "pythonic, in a manual": "Calls such as `[tide(harbour='Brest'), now()]` are read with `ast`, never run.",
}


@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS.keys())
def test_what_is_said_about_calls_is_no_call(text: str) -> None:
    assert read_leaked(text, TOOLS) is None
    assert read_text(text, TOOLS).calls == ()


@pytest.mark.parametrize(
    "prose",
    ["A call is `{}`.", "So it writes\n```\n{}\n```\nand waits.", "For example:\n\n{}"],
)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(row[1], id=row[0])
        for row in CALLS
        if not row[3]
        and not row[4]
        and "</think>" not in row[1]
        and not row[1].startswith("```")
    ],
)
def test_a_call_that_prose_shows_is_no_call(text: str, prose: str) -> None:
    assert read_leaked(prose.replace("{}", text), TOOLS) is None


@pytest.mark.parametrize(
    ("text", "visible", "thought"),
    [
        ("Just text with a <b>tag</b>.", "Just text with a <b>tag</b>.", ""),
        ("<think>\nHm, the ti", "", "Hm, the ti"),
        ("I look.\n<tool_call>", "I look.", ""),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>High.<|return|>",
            "High.",
            "Hm.",
        ),
        ("Hm.</think>High.", "High.", "Hm."),
        (
            "The tags `<think>` and `</think>` hold thoughts.",
            "The tags `<think>` and `</think>` hold thoughts.",
            "",
        ),
    ],
    ids=[
        "plain",
        "cut in thoughts",
        "a mark at the end",
        "harmony",
        "closed only",
        "tags in prose",
    ],
)
def test_text_without_calls_is_parted_into_seen_and_thought(
    text: str, visible: str, thought: str
) -> None:
    assert read_text(text, TOOLS) == Leaked((), visible, thought)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (
            'Thought: I need\nmore.\n\nAction: tide\n\nAction Input: {\n  "harbour": "a\\nAction: no",\n'
            '  "x": [1,\n  2]\n}\n',
            ReActStep(
                "I need\nmore.",
                "tide",
                {"harbour": "a\nAction: no", "x": [1, 2]},
                None,
                "\n",
            ),
        ),
        (
            'Action: `tide`\nAction Input: `{"harbour": "x"}`',
            ReActStep("", "tide", {"harbour": "x"}, None, "`"),
        ),
        (
            "**Action:** **tide**\n**Action Input:** Brest",
            ReActStep("", "tide", "Brest"),
        ),
        ("Action: Finish[It is 5 m]", ReActStep("", answer="It is 5 m")),
        (
            "Thought: Hm.\nAction: Search[high tide]",
            ReActStep("Hm.", "Search", "high tide"),
        ),
        (
            'Thought: go\n```\nAction: tide\nAction Input:\n```json\n{"harbour": "x"}\n```\n```',
            ReActStep("go", "tide", {"harbour": "x"}, None, "\n```\n```"),
        ),
        (
            "Thought: done\nFinal Answer: One.\nAction: still the answer.",
            ReActStep("done", answer="One.\nAction: still the answer."),
        ),
        (
            'Hm.\n```\n{"action": "Final Answer", "action_input": "5 m"}\n```',
            ReActStep("Hm.", answer="5 m"),
        ),
        (
            "Action: now\nObservation: 12\nAction: tide\nAction Input: x",
            ReActStep(
                "", "now", "", None, "Observation: 12\nAction: tide\nAction Input: x"
            ),
        ),
        (
            "Thought: Hm.\nObservation: 12\nFinal Answer: 12",
            ReActStep("Hm.", trailing="Observation: 12\nFinal Answer: 12"),
        ),
        ("Just text.", ReActStep("Just text.")),
        (
            "So:\n```\nAction: tide\nAction Input: x\n```\nThen it runs.",
            ReActStep("So:\n```\nAction: tide\nAction Input: x\n```\nThen it runs."),
        ),
    ],
    ids=[
        "many lines",
        "code",
        "bold",
        "finish",
        "brackets",
        "fenced",
        "answer",
        "blob",
        "first action",
        "invented",
        "text",
        "an example",
    ],
)
def test_one_step_of_react_is_read(text: str, step: ReActStep) -> None:
    assert read_react(text) == step


# fmt: off
_MARKS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "<function=tide>", "</function>",
    "<parameter=harbour>", "</parameter>", '<|"|>', "functools[", "```", "`", "{", "}", "[", "]", "(", ")", "\\", '"',
    "'", "tide", "now", "to=functions.", "<|channel|>", "<|message|>", "Action:", "\n", " ", "\0", "\ud800", "é",
    "9" * 5000,
]
# fmt: on
_PIECES = [row[1] for row in CALLS] + list(NO_CALLS.values()) + _MARKS


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(
        st.one_of(st.sampled_from(_PIECES), st.text(max_size=20)), max_size=6
    ),
    cut=st.integers(0, 400),
    is_prefilled=st.booleans(),
)
def test_no_text_raises_and_only_given_tools_are_named(
    pieces: list[str], cut: int, is_prefilled: bool
) -> None:
    text = "".join(pieces)[cut // 2 :][: 2000 - cut]
    leaked = read_leaked(text, TOOLS, reasoning_prefilled=is_prefilled)
    assert (leaked is not None) == bool(
        read_text(text, TOOLS, reasoning_prefilled=is_prefilled).calls
    )
    for name, arguments in leaked.calls if leaked else ():
        assert name in TOOLS
        assert isinstance(arguments, (dict, str))


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>",
        "[",
        "{",
        '{"a":',
        "(",
        "-",
        "`",
        "```\n",
        " ",
        "\n",
        "<think>",
        "Action: x\n",
    ],
)
def test_work_is_bounded(piece: str) -> None:
    text = "<tool_call>" + piece * (30_000 // len(piece))
    assert read_leaked(text, TOOLS) is None
    assert read_leaked(f"[tide(harbour={text})]", TOOLS) is None
