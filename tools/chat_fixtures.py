"""Makes crates/engine/tests/fixtures/chat/rendered.json.

    pip install jinja2==3.1.6
    python tools/chat_fixtures.py crates/engine/tests/fixtures/chat

Renders the templates of that directory with Jinja2 set up as Hugging Face's transformers sets it up.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1_700_000_000  # seconds; 2023-11-14 22:13:20 UTC

CHATS = [
    [("user", "Hi")],
    [("system", "  Be brief. "), ("user", 'Hello <world> & "you"\n')],
    [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nanswer"), ("user", "b\n\n")],
    [("user", "a"), ("assistant", "<think>x</think>y")],
    [("system", "s"), ("user", "a"), ("assistant", "plain"), ("user", "b b"), ("assistant", "c")],
    [("user", "a"), ("user", "b")],
    [("assistant", "first"), ("user", "x")],
    [("tool", "t")],
    [("user", "\u65e5\u672c \U0001f680 {{ x }} {% y %}"), ("assistant", "")],
    [],
    [("skip", "s"), ("user", "xa ab"), ("stop", "z")],
]


class Generation(jinja2.ext.Extension):
    """`{% generation %}` renders what is in it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, indent=None):
    return json.dumps(value, ensure_ascii=False, indent=indent)


def strftime_now(pattern):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(pattern)


def environment():
    extensions = [Generation, jinja2.ext.loopcontrols]
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return env


def main(directory):
    lines = []
    for path in sorted(directory.glob("*.jinja")):
        template = environment().from_string(path.read_text())
        for chat in CHATS:
            for prompt, thinking in [(True, None), (True, True), (True, False), (False, None)]:
                values = {} if thinking is None else {"enable_thinking": thinking}
                case = {"template": path.name, "messages": chat, "prompt": prompt, "thinking": thinking}
                try:
                    case["rendered"] = template.render(
                        messages=[{"role": role, "content": content} for role, content in chat],
                        tools=None, documents=None, add_generation_prompt=prompt,
                        bos_token="<s>", eos_token="</s>", **values,
                    )
                except jinja2.exceptions.UndefinedError:
                    case["failed"] = True
                except jinja2.exceptions.TemplateError as error:
                    case["refused"] = str(error)
                lines.append(json.dumps(case, separators=(",", ":")))
    (directory / "rendered.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
