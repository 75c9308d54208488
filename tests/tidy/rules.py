"""The house rules, each a function from one parsed module to the breaches found in it."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
MODULE_DOCSTRING_LINES_MAX = 40
BANNED_NAMES = frozenset(["base", "common", "helper", "helpers", "manager", "misc", "util", "utils"])
STDLIB_NAMES_ALLOWED = {
    "headrace.client.http": "how the client speaks HTTP, beside grpc",
    "headrace.server.http": "the room of that face, beside grpc and pg",
    "headrace.simple.json": "the JSON codec, beside the Avro one",
}
STDLIB_NAMES_ALLOWED_UNDER = {"headrace.cli": "a command's file is named after the command"}
# Bases whose subclasses bring methods of their own; with any other base a method may be an override, documented there.
PLAIN_BASES = frozenset(
    [
        "ABC",
        "Enum",
        "Exception",
        "Flag",
        "Generic",
        "IntEnum",
        "NamedTuple",
        "Protocol",
        "StrEnum",
        "Struct",
        "TypedDict",
    ]
)

_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
_TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore(\[[^\]]*\])?")
_NOQA = re.compile(r"#\s*noqa(:\s*[A-Z]+[0-9]+(\s*,\s*[A-Z]+[0-9]+)*)?", re.IGNORECASE)
_REASON = re.compile(r"[A-Za-z]{2,}\W+\w+")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of Python: ``name`` is what it is imported as."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Those of a module that has any which a rule asks for: telling comments from texts takes long."""
        if not any(pattern.search(self.text) for pattern in (_UNFINISHED, _TYPE_IGNORE, _NOQA)):
            return []
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]

    @property
    def in_src(self) -> bool:
        return self.name.partition(".")[0] != "tests"


def read_modules(root: Path, prefix: str = "") -> list[Module]:
    """Return every hand-written module below ``root``, named ``prefix`` + its place there."""
    found = []
    for path in sorted(root.rglob("*.py")):
        if path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
            continue
        parts = path.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        found.append(Module(prefix + ".".join(parts), path.read_text(encoding="utf-8")))
    return found


def file_too_long(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{lines} lines; at most {FILE_LINES_MAX}"


def function_too_long(module: Module) -> Iterator[str]:
    if not module.in_src:
        return
    for function in _functions(module):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield f"{function.lineno}: {function.name} has {lines} lines; at most {FUNCTION_LINES_MAX}"


def banned_name(module: Module) -> Iterator[str]:
    last = module.name.rpartition(".")[2]
    if last in BANNED_NAMES:
        yield f"'{last}' says nothing; name the module by a noun of the field"


def shadows_stdlib(module: Module) -> Iterator[str]:
    last = module.name.rpartition(".")[2]
    if last not in sys.stdlib_module_names or not module.in_src or module.name in STDLIB_NAMES_ALLOWED:
        return
    if not any(module.name.startswith(f"{parent}.") for parent in STDLIB_NAMES_ALLOWED_UNDER):
        yield f"'{last}' is a module of the standard library"


def module_docstring(module: Module) -> Iterator[str]:
    lines = (ast.get_docstring(module.tree) or "").count("\n") + 1
    if not ast.get_docstring(module.tree):
        yield "no module docstring"
    elif lines > MODULE_DOCSTRING_LINES_MAX:
        yield f"a module docstring of {lines} lines; at most {MODULE_DOCSTRING_LINES_MAX}"


def public_docstring(module: Module) -> Iterator[str]:
    if not module.in_src:
        return
    for node in module.tree.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        if not _is_overload(node) and not ast.get_docstring(node):
            yield f"{node.lineno}: {node.name} has no docstring"
        if isinstance(node, ast.ClassDef) and {_name(base) for base in node.bases} <= PLAIN_BASES:
            for method in node.body:
                if isinstance(method, Function) and _wants_docstring(method):
                    yield f"{method.lineno}: {node.name}.{method.name} has no docstring"


def prints(module: Module) -> Iterator[str]:
    if module.in_src and not module.name.startswith("headrace.cli"):
        for call in _calls(module):
            if isinstance(call.func, ast.Name) and call.func.id == "print":
                yield f"{call.lineno}: print outside the command line"


def unfinished(module: Module) -> Iterator[str]:
    docs = [(1, ast.get_docstring(module.tree) or "")]
    docs += [(node.lineno, ast.get_docstring(node) or "") for node in _functions(module)]
    for line, text in [*module.comments, *docs]:
        if match := _UNFINISHED.search(text):
            yield f"{line}: {match[0]}: finish it, or open an issue"


def bare_suppression(module: Module) -> Iterator[str]:
    for line, comment in module.comments:
        for pattern in (_TYPE_IGNORE, _NOQA):
            if (match := pattern.search(comment)) and not _REASON.search(comment[match.end() :]):
                yield f"{line}: '{match[0]}' without a reason after it"


def sleeps(module: Module) -> Iterator[str]:
    if module.in_src or module.name == "tests.waiting":
        return
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and _name(node.value) in _SLEEPERS:
            yield f"{node.lineno}: sleeps; use tests.waiting"
        if isinstance(node, ast.ImportFrom) and node.module in _SLEEPERS and _imports(node, "sleep"):
            yield f"{node.lineno}: imports sleep; use tests.waiting"


_SLEEPERS = frozenset({"anyio", "asyncio", "time", "trio"})


def mocks(module: Module) -> Iterator[str]:
    for node in module.nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        if any(name.split(".")[0] == "mock" or name.startswith("unittest.mock") for name in names):
            yield f"{node.lineno}: imports a mock library"  # type: ignore[attr-defined]  # names are of imports alone


def skips(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr in _SKIPPERS and _name(node.value) in _SKIP_OWNERS:
            yield f"{node.lineno}: {node.attr}: a skipped test is a hole"
        if isinstance(node, ast.ImportFrom) and node.module in _SKIP_OWNERS and _imports(node, *_SKIPPERS):
            yield f"{node.lineno}: imports a way to skip: a skipped test is a hole"


_SKIPPERS = frozenset({"SkipTest", "importorskip", "skip", "skipIf", "skipUnless", "skipif", "xfail"})
_SKIP_OWNERS = frozenset({"mark", "pytest", "unittest"})


def log_messages(module: Module) -> Iterator[str]:
    """A log line's message is a constant, so that it can be counted and searched for; what differs stands in fields."""
    if not module.in_src:
        return
    for call in _calls(module):
        if not (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in _LOG_CALLS
            and _is_logger(call.func.value)
        ):
            continue
        message = call.args[0] if len(call.args) == 1 else None
        if not (isinstance(message, ast.Constant) and isinstance(message.value, str)):
            yield f"{call.lineno}: a log message is one constant string; put what differs into fields"
        elif "%" in message.value or "{" in message.value:
            yield f"{call.lineno}: a log message is filled in by nobody; put what differs into fields"


_LOG_CALLS = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"})
_LOGGERS = frozenset({"log", "_log", "logger", "_logger"})


def _is_logger(node: ast.expr) -> bool:
    """Tell whether this is a logger: by its name, or because it is made on the spot."""
    if isinstance(node, ast.Call):
        return _name(node.func) in {"bind", "get_logger", "getLogger"}
    return _name(node) in _LOGGERS


def loads_pandas(module: Module) -> Iterator[str]:
    """No room of ours needs pandas, which takes half a second and 30 MB of each process: ``headrace.wire.arrays`` does."""
    if not module.in_src:
        return
    for node in module.nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.split(".")[0] == "pandas" for name in names):
            yield f"{node.lineno}: imports pandas"  # type: ignore[attr-defined]  # names are of imports alone
    for call in _calls(module):
        if not isinstance(call.func, ast.Attribute):
            continue
        owner, name = _name(call.func.value), call.func.attr
        plain = owner == "pc" and any(isinstance(value, ast.Constant) for value in call.args)
        if name in _PANDAS_METHODS or (owner == "pa" and name in {"array", "scalar"}) or plain:
            yield f"{call.lineno}: {owner}.{name} imports pandas; use headrace.wire.arrays"


_PANDAS_METHODS = frozenset({"from_pandas", "from_pylist", "to_numpy", "to_pandas", "toPandas"})


RULES = (
    banned_name,
    bare_suppression,
    file_too_long,
    function_too_long,
    loads_pandas,
    log_messages,
    mocks,
    module_docstring,
    prints,
    public_docstring,
    shadows_stdlib,
    skips,
    sleeps,
    unfinished,
)


def _functions(module: Module) -> Iterable[Function]:
    return (node for node in module.nodes if isinstance(node, Function))


def _calls(module: Module) -> Iterable[ast.Call]:
    return (node for node in module.nodes if isinstance(node, ast.Call))


def _imports(node: ast.ImportFrom, *names: str) -> bool:
    return any(alias.name in names for alias in node.names)


def _name(node: ast.expr) -> str:
    """Return the last name of ``a.b.c`` or ``c[d]``, '' for any other expression."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Subscript():
            return _name(node.value)
    return ""


def _is_overload(node: Function | ast.ClassDef) -> bool:
    return any(_name(decorator) == "overload" for decorator in node.decorator_list)


def _wants_docstring(method: Function) -> bool:
    exempt = {"overload", "override", "setter", "deleter"}
    if method.name.startswith("_") or any(_name(decorator) in exempt for decorator in method.decorator_list):
        return False
    return not ast.get_docstring(method)
