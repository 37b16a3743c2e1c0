"""A chat template, run in its own process: messages become the text that a model was trained to continue.

    echo '{"template": "...", "variables": {"messages": [...]}}' | python -I extra/chat/chat_template.py [FOLDER]

The output says whether the template refuses, and has its text or why.

A template is a program in the language Jinja that comes with a model, and so from anyone. jinja2's sandbox keeps it
from everything but the variables it is given. A sandbox does not limit time and memory, so the template gets a process
that is killed after a few seconds, may take 1 GiB of memory (except on Windows, which has no such limit), and may write
4 MB.

This file imports nothing of the project, so that the process starts quickly, and needs no path but that of Python; the
folder in which the package jinja2 is comes last. It adds the functions that templates may
expect from Hugging Face's transformers.
"""

import contextlib
import datetime
import json
import signal
import sys
from typing import Any, ClassVar

MAX_SECONDS = 10
MAX_MEMORY = 2**30  # bytes
MAX_OUTPUT = 4_000_000  # characters


def main() -> int:
    """Answer the request on stdin; returns the exit status."""
    sys.path += sys.argv[1:]
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment as Sandbox

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends a reply, not the conversation
    with contextlib.suppress(ImportError, OSError, ValueError):  # where the system cannot enforce a limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))

    class Generation(Extension):
        """{% generation %} ... {% endgeneration %} marks what is to be learned in training: it changes no text."""

        tags: ClassVar = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
        return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)

    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    request, text, is_refused = json.load(sys.stdin), "", False
    try:
        for piece in environment.from_string(request["template"]).generate(**request["variables"]):
            text += piece
            if len(text) > MAX_OUTPUT:
                raise TemplateError(f"it writes more than {MAX_OUTPUT:,} characters")
    except MemoryError:
        return 1
    except Exception as error:  # a template can raise whatever Python's operators do
        text, is_refused = f"{error}" or type(error).__name__, True
    json.dump([is_refused, text.encode("utf-8", "replace").decode("utf-8")], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
