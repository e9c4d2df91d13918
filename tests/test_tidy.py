"""Rules of the repository that no other tool checks."""

import ast
import builtins
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from configparser import ConfigParser, SectionProxy
from pathlib import Path

import pytest

from spillway.addresses import EVENT_TYPES, EVENTS_BY_TOPIC, TOPICS

ROOT = Path(__file__).parent.parent
SERVICES = ("snapshot", "planner", "propagator", "hpa", "vk-bridge", "descheduler")
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 560
"""The longest module of today, so that none grows beyond it. Eleven are longer than 500 lines. They are one class with
its states, a list of values that others look up in one place (events, the model, objects), the steps of one algorithm,
or an adapter with its small parts (local_bus.py). Two files would only tear these apart. Files of tests may be longer:
each test stands for itself."""
VAGUE_NAMES = frozenset(
    """
    accept add ask begin cover decide do done drop due end evaluate fail fill found gone handle hear held hold keep kept
    left let look make need note of one place placed process put said say see seen serve set settle show shown step take
    taken tell told touch tried try use want was work
    """.split()  # noqa: SIM905 - a list of seventy quoted words is hard to read
)
"""Words that are too vague as the whole name of a function: a reader cannot tell its action or its object."""
VARIABLES_MAX = 90
"""Of all services together; what several have by one class is counted once."""
# Put together here, so that this file does not name them either.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("proxy", "golang", "org"),
        ("repo1", "maven", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
    )
)


def source_files() -> Iterator[Path]:
    for folder in ("libs", "services", "cli", "local"):
        for path in (ROOT / folder).rglob("src/**/*.py"):
            if "v1" not in path.parts:
                yield path


OTHERS_NAMES = frozenset(
    """
    max_poll_interval cron_scaler scale_scaledobjects scale_jobs scale_handler kafka_scaler replica_calculator
    """.split()  # noqa: SIM905 - a list of words
)
"""Docstrings name these source files of Kubernetes and KEDA, and this setting of Kafka."""


def _docstrings(tree: ast.AST) -> list[ast.Constant]:
    bodies = (node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list))
    values = (line.value for body in bodies for line in body if isinstance(line, ast.Expr))
    return [value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def _names_in_code(text: str) -> set[str]:
    """Returns the words of a Python file that are neither in a docstring nor in a comment."""
    return set(re.findall(r"\w+", re.sub(r'"""[\s\S]*?"""|#.*', "", text)))


def _unknown_names(tree: ast.AST, known: set[str]) -> list[str]:
    """Returns the functions and names with an underscore that a docstring names and no code has."""
    pattern = re.compile(r"(?<![\w.])([a-z_]\w*_\w+|[a-z]\w+(?=\(\)))(?![\w*])")
    return [name for value in _docstrings(tree) for name in pattern.findall(str(value.value)) if name not in known]


def test_docstrings_name_only_what_is_there() -> None:
    """If a function gets a new name, no docstring keeps the former one."""
    patterns = (
        "libs/**/*",
        "services/**/*",
        "cli/**/*",
        "local/**/*",
        "lab/**/*",
        "tests/**/*",
        "docs/*",
        "proto/**/*",
        "*",
    )
    paths = {path for pattern in patterns for path in ROOT.glob(pattern) if ".venv" not in path.parts}
    known = {*OTHERS_NAMES, *dir(builtins), *(path.stem for path in paths if path.suffix == ".py")}
    for path in paths:
        if path.suffix == ".py":
            known |= _names_in_code(path.read_text())
        elif path.suffix in (".proto", ".yaml", ".yml", ".toml", ".json") or path.name == "Makefile":
            known.update(re.findall(r"\w+", path.read_text()))
    found = {str(path.relative_to(ROOT)): _unknown_names(ast.parse(path.read_text()), known) for path in source_files()}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ('def look():\n    """As `take_turn` does."""', ["take_turn"]),
        ('def look():\n    """Call close() before."""', ["close"]),
        ('def take_turn():\n    """As take_turn does, for topic_name."""\n    topic_name = 1', []),
        ('def look():\n    """The first one: take, turn."""', []),
    ],
)
def test_a_name_that_is_nowhere_is_noticed(text: str, unknown: list[str]) -> None:
    assert _unknown_names(ast.parse(text), _names_in_code(text)) == unknown


def _vague_function_names(text: str) -> list[str]:
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in functions if node.name.strip("_") in VAGUE_NAMES]


def test_no_function_is_called_by_one_vague_word() -> None:
    """A name has a verb with its object, or a noun with its qualifier (CONTRIBUTING.md)."""
    files = (*source_files(), *(ROOT / "lab").rglob("*.py"))
    found = {str(path.relative_to(ROOT)): _vague_function_names(path.read_text()) for path in files}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("line", "vague"),
    [
        ("def take(): pass", ["take"]),
        ("class Log:\n    async def _apply(self): pass\n    async def _take(self): pass", ["_take"]),
        ("def take_turn(): pass", []),
        ("def close(): pass", []),
    ],
)
def test_a_vague_name_of_a_function_is_noticed(line: str, vague: list[str]) -> None:
    assert _vague_function_names(line) == vague


@pytest.mark.parametrize("path", sorted(source_files()), ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_small_and_say_what_they_are(path: Path) -> None:
    """Each module has a docstring, at most MODULE_LINES_MAX lines, and no function over 60."""
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says in its first line what it decides or touches"
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX]
    assert long == []


def classes_by_name() -> dict[str, list[str]]:
    """The files of each class, by its name. libs/sim is left out: it stands in for Kubernetes and uses its names."""
    found: dict[str, list[str]] = {}
    for path in sorted(source_files()):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not path.is_relative_to(ROOT / "libs/sim"):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    return found


def test_no_two_classes_share_a_name() -> None:
    """A name stands for one thing in all services: a domain noun and a role, as in MetricProposal."""
    assert {name: paths for name, paths in classes_by_name().items() if len(paths) > 1} == {}


FRAGMENTS = re.compile(
    r"(What|Whether|Where|Who|Whose|How|When|Of|As|Until|While|For|By|In|On|So|To|At|That|Those|These|Such|With|Without"
    r"|Nothing|Nobody|None|Empty|Only|Also|Its|They|Which|If|But|And|Than|From|Not|Nor|Since|Behind|Beside|Before"
    r"|After|Once|Under|Over|Among)\b"
)
"""Words with which a docstring begins that is no sentence: a reader has to guess its subject and its verb."""


def fragments_in(text: str) -> list[str]:
    """Returns the first lines of docstrings of modules, classes and functions that begin with such a word."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [one.splitlines()[0] for one in found if one and FRAGMENTS.match(one)]


def test_docstrings_begin_with_a_sentence() -> None:
    """The first words say what a thing is or does."""
    assert fragments_in('"""Whether it is on."""') == ["Whether it is on."]
    assert fragments_in('"""Returns whether it is on."""') == []
    found = {str(path.relative_to(ROOT)): fragments_in(path.read_text()) for path in source_files()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_test_builds_the_member_binary_unasked() -> None:
    """Where it is not built the fixture kube_binary skips the test: a build lasts longer than a test may."""
    builds = re.compile(r"\bensure_kube_binary\b")
    modules = [path for path in _files_of_tests() if path.name.startswith("test_")]
    unasked = [
        str(path.relative_to(ROOT))
        for path in modules
        if builds.search(text := path.read_text()) and "SPILLWAY_KUBE" not in text
    ]
    assert unasked == ["local/tests/test_kube_binary.py"], "it looks at the function itself"


def variables_in(text: str) -> list[str]:
    """Class.field of each field that a variable sets: `setting(…)`, or `field(metadata=…)`, which has no default."""
    return [
        f"{kind.name}.{ast.unparse(one.target)}"
        for kind in ast.walk(ast.parse(text))
        if isinstance(kind, ast.ClassDef)
        for one in kind.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.value, ast.Call)
        if ast.unparse(one.value.func) == "setting" or any(word.arg == "metadata" for word in one.value.keywords)
    ]


def test_operators_have_few_variables_to_know() -> None:
    """What nobody needs to turn is a `constant` with its reason. Not counted: the command's own config."""
    found = [name for path in source_files() if "cli" not in path.parts for name in variables_in(path.read_text())]
    assert {"KafkaSettings.bootstrap", "PlannerSettings.moves_per_minute"} <= {*found}
    assert "PlannerSettings.tick_seconds" not in found
    assert len(found) <= VARIABLES_MAX


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_the_same_parts(service: str) -> None:
    """settings.py, core/, service.py, __main__.py and a README."""
    folder = ROOT / "services" / service
    parts = ("settings.py", "core/__init__.py", "service.py", "__main__.py")
    package = service.replace("-", "_")
    assert [part for part in parts if not (folder / "src" / package / part).is_file()] == []
    assert (folder / "README.md").is_file()


def test_every_event_is_on_a_topic_and_says_what_it_means() -> None:
    """No event without a topic, no topic without an event, no event without a sentence."""
    assert set(EVENT_TYPES) == {event for events in EVENTS_BY_TOPIC.values() for event in events}
    assert {topic.name for topic in TOPICS} == set(EVENTS_BY_TOPIC)
    undocumented = [event.__name__ for event in EVENT_TYPES if (event.__doc__ or "").startswith(f"{event.__name__}(")]
    assert undocumented == []


def test_every_metric_is_set_somewhere() -> None:
    """A metric that nobody sets says 0 for ever, which is a lie."""
    metrics = ROOT / "libs" / "spillway" / "src" / "spillway" / "metrics.py"
    declared = re.findall(r"^([A-Z][A-Z_]+): Final = ", metrics.read_text(), re.MULTILINE)
    used = set(re.findall(r"metrics\.([A-Z_]+)", "".join(path.read_text() for path in source_files())))
    children = dict(re.findall(r"^([A-Z_]+): Final = .*?\b([A-Z_]+)\.labels", metrics.read_text(), re.MULTILINE))
    used |= {parent for child, parent in children.items() if child in used}
    assert [name for name in declared if name not in used | {"VERBS"}] == []


def test_no_file_names_a_registry() -> None:
    """Packages are named; where they come from is the machine's business."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    names = [name for name in listed.stdout.decode().split("\0") if name]
    if not names:
        pytest.skip("not a git checkout: the files of the project cannot be told from others")
    found = [
        name
        for name in names
        if (ROOT / name).is_file() and any(host in (ROOT / name).read_text(errors="ignore") for host in REGISTRY_HOSTS)
    ]
    assert found == []


CORE = "services/planner/src/planner/core"
LIBRARY = "libs/spillway/src/spillway"
FOLLOWING = f"{LIBRARY}/running/following.py"
CORE_FILES = (
    f"{CORE}/division/votes.py",
    "services/descheduler/src/descheduler/core/rules.py",
    "services/hpa/src/hpa/core/rules.py",
    "services/propagator/src/propagator/core/live.py",
    "services/snapshot/src/snapshot/core/age.py",
    "services/vk-bridge/src/vk_bridge/core/node/loan.py",
)
"""One file of each service's core."""
FORBIDDEN = (
    *(
        (f"{CORE}/division/votes.py", name)
        for name in ("asyncio", "pathlib", "tempfile", "time", "urllib", "spillway.wire", "spillway.waiting")
    ),
    *(
        (FOLLOWING, name)
        for name in (
            "aiohttp",
            "aiokafka",
            "cramjam",
            "grpc",
            "opentelemetry",
            "prometheus_client",
            "redis",
            "sim.settings",
        )
    ),
    *((file, f"{file.partition('/src/')[2].partition('/')[0]}.settings") for file in CORE_FILES),
    (f"{LIBRARY}/events.py", "spillway.wire"),
    (f"{LIBRARY}/running/work_queue.py", "spillway.running.serving"),
    (f"{LIBRARY}/kafka/access.py", "spillway.kafka.bus"),
    (f"{LIBRARY}/rpc/callers.py", "spillway.rpc.server"),
    (f"{LIBRARY}/clusters/endpoint.py", "spillway.clusters.api"),
    (f"{LIBRARY}/kubernetes/quantities.py", "spillway.kubernetes.pod_shape"),
    (f"{LIBRARY}/feasibility/volumes.py", "spillway.feasibility.fit"),
    ("services/hpa/src/hpa/settings.py", "snapshot.settings"),
    (f"{CORE}/feasibility/quota.py", "planner.core.explaining.witness"),
    (f"{CORE}/knowledge/holds.py", "planner.core.background.moves"),
    ("services/hpa/src/hpa/core/rules.py", "hpa.core.sizing"),
    ("services/snapshot/src/snapshot/core/age.py", "snapshot.core.collection"),
    ("services/propagator/src/propagator/core/live.py", "propagator.core.reconcile"),
    ("services/vk-bridge/src/vk_bridge/core/node/loan.py", "vk_bridge.core.selection.desired_loans"),
    ("services/vk-bridge/src/vk_bridge/core/node/usage.py", "vk_bridge.core.node.marks"),
    ("services/vk-bridge/src/vk_bridge/core/pod/update.py", "vk_bridge.core.selection.candidates"),
    ("services/vk-bridge/src/vk_bridge/core/pod/budgets.py", "vk_bridge.core.pod.status"),
    ("services/vk-bridge/src/vk_bridge/core/selection/idleness.py", "vk_bridge.core.selection.owner_cache"),
    ("services/vk-bridge/src/vk_bridge/cluster/pools.py", "vk_bridge.log.record_writer"),
    ("services/descheduler/src/descheduler/core/rules.py", "descheduler.core.needs"),
)
"""Files, and what each must not import."""


def _import_contracts() -> list[SectionProxy]:
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    return [section for title, section in parser.items() if title.startswith("importlinter:contract:")]


def test_an_import_that_a_contract_forbids_fails_the_check(tmp_path: Path) -> None:
    """lint-imports notices each: IO in a core, an outside library past its door, a package above. Each contract is
    broken by one of them, so none passes whatever the code does."""
    for folder in ("libs", "services", "cli", "local"):
        ignored = shutil.ignore_patterns("__pycache__", "tests", "kube")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / ".importlinter", tmp_path)
    for path, name in FORBIDDEN:
        file = tmp_path / path
        file.write_text(f"{file.read_text()}\nimport {name}\n")
    found = [str(path) for path in tmp_path.glob("*/*/src")] + [str(path) for path in tmp_path.glob("*/src")]
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(found), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    arrows = {(path.partition("src/")[2].removesuffix(".py").replace("/", "."), name) for path, name in FORBIDDEN}
    assert {arrow for arrow in arrows if " -> ".join(arrow) not in result.stdout} == set()
    names = [contract["name"] for contract in _import_contracts()]
    assert [name for name in names if f"{name} BROKEN" not in result.stdout] == []


PURE_ALL_THE_SAME = {
    "spillway.compressed_text": "threading keeps a compressor for each thread",
    "spillway.kubernetes.objects": "urllib.parse quotes a text",
}
"""Modules that import what a core may not, and do no IO by it: a core may import them."""


def _imported_names(tree: ast.AST) -> set[str]:
    """Returns the dotted names that a file may import: of `from a import b` both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases):
                names.update((module, *(f"{module}.{alias.name}" for alias in aliases)))
    return names


def _is_within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_a_core_may_import_no_module_of_ours_that_does_io_for_it() -> None:
    """The contract forbids what a core itself imports, and not what that imports in turn."""
    (contract,) = (one for one in _import_contracts() if one["name"].startswith("Decision cores"))
    forbidden, cores = contract["forbidden_modules"].split(), contract["source_modules"].split()
    open_to_cores: dict[str, set[str]] = {}
    for path in (*ROOT.glob("libs/*/src/**/*.py"), *ROOT.glob("services/*/src/**/*.py")):
        module = ".".join(path.with_suffix("").relative_to(ROOT).parts[3:]).removesuffix(".__init__")
        if not _is_within(module, (*forbidden, *cores)):
            open_to_cores[module] = {
                name for name in _imported_names(ast.parse(path.read_text())) if _is_within(name, forbidden)
            }
    assert {module for module, names in open_to_cores.items() if names} == set(PURE_ALL_THE_SAME)


def test_architecture_md_names_the_doors_of_each_outside_library() -> None:
    doors = {
        frozenset(contract["protected_modules"].split()): frozenset(contract["allowed_importers"].split())
        for contract in _import_contracts()
        if contract["type"] == "protected"
    }
    _, _, table = (ROOT / "ARCHITECTURE.md").read_text().partition("| library | modules that may import it |")
    rows = [re.split(r" \| ", line) for line in table.split("\n\n")[0].splitlines()[2:]]
    told = {frozenset(re.findall(r"`(.+?)`", row[0])): frozenset(re.findall(r"`(.+?)`", row[1])) for row in rows}
    assert told == doors


@pytest.mark.parametrize("call", ["datetime.now(UTC)", "date.today()", "np.random.default_rng()"])
def test_a_core_that_asks_a_clock_or_draws_fails_the_check(call: str) -> None:
    """ruff notices a call by its name, in cores alone."""
    imports = "from datetime import UTC, date, datetime\n\nimport numpy as np\n"
    text = f'"""A module."""\n\n{imports}\nFOUND = (UTC, date, datetime, np, {call})\n'
    for file, is_found in ((f"{CORE}/division/votes.py", True), ("services/planner/src/planner/service.py", False)):
        result = subprocess.run(
            [Path(sys.executable).with_name("ruff"), "check", "--select", "TID251", "--stdin-filename", file, "-"],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ("TID251" in result.stdout) is is_found


# ── Servers are asked through one door ──────────────────────────────────────────────────────────────────────────────

HTTP_CLIENT = "libs/spillway/src/spillway/http_client.py"
OPENERS = frozenset(("BaseConnector", "ClientSession", "NamedPipeConnector", "TCPConnector", "UnixConnector"))


def _opens_sessions(tree: ast.AST) -> bool:
    """Whether a module calls, or makes a class of, what opens HTTP connections: any of OPENERS or `aiohttp.request`."""
    used = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    used += [base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    return any(ast.unparse(one).rpartition(".")[2] in OPENERS or ast.unparse(one) == "aiohttp.request" for one in used)


def test_sessions_are_opened_where_answers_have_bounds() -> None:
    """aiohttp's own sessions take in whatever a server sends: see the module."""
    opening = [str(path.relative_to(ROOT)) for path in source_files() if _opens_sessions(ast.parse(path.read_text()))]
    assert opening == [HTTP_CLIENT]


@pytest.mark.parametrize(
    ("line", "opens"),
    [
        ("aiohttp.ClientSession()", True),
        ("ClientSession(url, timeout=timeout)", True),
        ("connector=aiohttp.TCPConnector(limit=8)", True),
        ("class Own(aiohttp.TCPConnector): ...", True),
        ("aiohttp.request('GET', url)", True),
        ("def ask(session: aiohttp.ClientSession) -> None: ...", False),
        ("self._session: aiohttp.ClientSession | None = None", False),
        ("session.request('GET', url)", False),
    ],
)
def test_what_opens_a_session_is_noticed(line: str, opens: bool) -> None:
    assert _opens_sessions(ast.parse(line)) == opens


# ── Decisions read codes, never sentences ───────────────────────────────────────────────────────────────────────────

TEXT_FIELDS = frozenset(
    ("text", "message", "reason", "note", "trouble", "detail", "strerror", "limited_by", "waiting_for")
)
"""Fields that hold sentences for people."""
TEXT_NAMES = frozenset(("message", "trouble", "waiting_for"))
"""Variables that do; a variable `text` is as often something that a person wrote, to be read."""
CORE_NAMES = TEXT_NAMES | {"text", "reason", "note", "limited_by"}
"""The same in cores, where each `text` that is to be read stands below with who wrote it."""
TEXT_METHODS = frozenset(
    (
        *("startswith", "endswith", "partition", "rpartition", "split", "rsplit", "splitlines", "find", "rfind"),
        *("index", "removeprefix", "removesuffix", "strip", "lstrip", "rstrip"),
    )
)
TEXT_PATTERNS = frozenset(("search", "match", "fullmatch", "findall", "finditer", "sub"))
KUBERNETES = "Kubernetes has no code for it"
SENTENCE = "only which words are shown depends on it"
LIBRARY = "the library has no code for it"
OLDER = "a version before codes wrote the words alone, and decided by them"
WRITTEN = "somebody wrote it to be read: a field of a manifest, a setting, a version"
TEXTS_READ = {
    "cli/src/spillway_cli/main.py": {"_naming_bad_value": SENTENCE},
    "cli/src/spillway_cli/manifests.py": {"_yaml_error_text": SENTENCE},
    "cli/src/spillway_cli/waiting.py": {"missing_for_ready_text": SENTENCE},
    "cli/src/spillway_cli/lending_rules.py": {"_decode_lending_fields": LIBRARY},
    "libs/sim/src/sim/core/replicasets.py": {"_refusal_text": SENTENCE},
    "libs/spillway/src/spillway/clusters/answers.py": {"is_about_rights": KUBERNETES},
    "libs/spillway/src/spillway/kubernetes/pod_shape.py": {"convert_manifest_part": LIBRARY},
    "libs/spillway/src/spillway/rpc/route.py": {"deadline_error": SENTENCE},
    "libs/spillway/src/spillway/status_details.py": {
        "_details_of_older_message": OLDER,
        "message_without_hold": SENTENCE,
    },
    "services/hpa/src/hpa/core/cron.py": {"_parse_field": WRITTEN},
    "services/hpa/src/hpa/core/keda/expressions.py": {"_split_tokens": WRITTEN},
    "services/hpa/src/hpa/core/keda/fallback.py": {"parse_whole_number": WRITTEN},
    "services/hpa/src/hpa/core/keda/kafka_metadata.py": {
        "_parse_brokers": WRITTEN,
        "_parse_partition": WRITTEN,
        "read_partitions": WRITTEN,
    },
    "services/hpa/src/hpa/core/manifests/scale_policy.py": {"_parse_duration_seconds": WRITTEN},
    "services/hpa/src/hpa/core/manifests/scaled_object.py": {"_parse_thousandths": WRITTEN},
    "services/planner/src/planner/core/division/words.py": {"_read_older_limit": OLDER},
    "services/planner/src/planner/core/knowledge/placement_waits.py": {
        "_read_older_waits": OLDER,
        "text_without_rollout": OLDER,
    },
    "services/planner/src/planner/core/knowledge/rules.py": {"from_text": WRITTEN},
    "services/planner/src/planner/core/manifests/policy.py": {"read_policy": LIBRARY},
    "services/planner/src/planner/core/manifests/propagation.py": {"translate_error_text": SENTENCE},
    "services/propagator/src/propagator/core/admission.py": {
        "outcome_of_refusal": KUBERNETES,
        "refusal_without_pod_name": SENTENCE,
    },
    "services/propagator/src/propagator/core/live.py": {"_parse_counter": WRITTEN},
    "services/snapshot/src/snapshot/core/workloads.py": {"read_placement_version": WRITTEN},
    "services/vk-bridge/src/vk_bridge/cluster/copies.py": {"is_namespace_gone_error": KUBERNETES},
    "services/vk-bridge/src/vk_bridge/core/pod/conversion.py": {"copy_places_in_annotations": WRITTEN},
}
"""By file and function: where a program looks for words in a sentence all the same, and why."""


def _is_text(node: ast.AST, names: frozenset[str]) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name in TEXT_FIELDS
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
            return name in ("error", "caught")
    return False


def _reads_text(node: ast.AST, names: frozenset[str]) -> bool:
    """Whether it looks for words in a field that holds a sentence, or in an exception's text."""
    match node:
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[text]):
            return _is_text(text, names)
        case ast.Call(func=ast.Attribute(value=value, attr=attribute), args=args):
            found = attribute in TEXT_METHODS and _is_text(value, names)
            return found or (attribute in TEXT_PATTERNS and any(_is_text(one, names) for one in args))
    return False


def _text_readers(tree: ast.AST, names: frozenset[str] = TEXT_NAMES) -> set[str]:
    """Names of the innermost functions that read texts."""
    found: set[str] = set()

    def walk_node(node: ast.AST, function: str) -> None:
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if _reads_text(node, names):
            found.add(inner)
        for child in ast.iter_child_nodes(node):
            walk_node(child, inner)

    walk_node(tree, "")
    return found


def test_no_program_looks_for_words_in_sentences_but_where_it_is_said_why() -> None:
    """A code beside the text says the same to programs: see spillway.troubles and spillway.reasons."""
    found = {}
    for path in source_files():
        of_core = path.is_relative_to(ROOT / "services") and "core" in path.parts
        names = CORE_NAMES if of_core else TEXT_NAMES
        found[str(path.relative_to(ROOT))] = _text_readers(ast.parse(path.read_text()), names)
    assert {name: readers for name, readers in found.items() if readers} == {
        name: set(functions) for name, functions in TEXTS_READ.items()
    }


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ('"cpu" in error.text', True),
        ('"401" not in str(error)', True),
        ('reply.trouble.split(": ")[1] == "forbidden"', True),
        ('status.message.startswith("Complete")', True),
        ("room.limited_by.removesuffix(PROMISED)", True),
        ('entry.reason.rsplit(" ", 1)', True),
        ("NO_RIGHT.search(status.message)", True),
        ('error.reason == "FITS_NO_NODE"', False),
        ("log.warning(str(error))", False),
        ("cluster in known", False),
    ],
)
def test_looking_for_words_is_noticed(line: str, reads: bool) -> None:
    assert bool(_text_readers(ast.parse(line))) == reads


def test_in_a_core_a_text_of_any_name_is_noticed() -> None:
    assert _text_readers(ast.parse('text.rpartition("waits for ")'), CORE_NAMES)


# ── Tests replace nothing of ours ───────────────────────────────────────────────────────────────────────────────────

LIBRARY_BEHIND = "it is a library's, and no function of ours"
NO_FUNCTION = "an address, not a function"
DOOR = "the command opens the log itself, and the fake of that adapter is put there"
BUG = "what a bug of ours costs is the question, and there is none to be had"
ODD = "an answer of a member that its simulation never gives"
LOOKS_ON = "the simulation looks at each answer of a simulated cluster, and changes none"
REPLACED = {
    "cli/tests/test_brake_commands.py": {"joined.lending_address": NO_FUNCTION},
    "cli/tests/test_fleets.py": {
        "Config.__dataclass_fields__['endpoints'].default": NO_FUNCTION,
        "Config.__dataclass_fields__[name].default": NO_FUNCTION,
    },
    "cli/tests/test_log_commands.py": {"log_commands.open_bus": DOOR},
    "cli/tests/test_scaling_commands.py": {"scaled.scaling_address": NO_FUNCTION},
    "libs/spillway/tests/test_http_client.py": {"owner.<function>": LIBRARY_BEHIND},
    "libs/spillway/tests/test_kafka_internals.py": {
        "AIOKafkaConnection._create_reader_task": LIBRARY_BEHIND,
        "__import__(owner.__module__, fromlist=['_']).<owner.__name__>": LIBRARY_BEHIND,
        "fetcher.PartitionRecords._unpack_records": LIBRARY_BEHIND,
        "owner.<name>": LIBRARY_BEHIND,
    },
    "libs/spillway/tests/test_rpc_front.py": {"call_server.cygrpc._handle_rpc": LIBRARY_BEHIND},
    "libs/spillway/tests/test_rpc_manifests.py": {"manifest_text.json.loads": LIBRARY_BEHIND},
    "services/descheduler/tests/test_service.py": {"recalling.recall_for_needs": BUG},
    "services/hpa/tests/test_lag.py": {"AIOKafkaConnection._create_reader_task": LIBRARY_BEHIND},
    "services/propagator/tests/test_isolation.py": {
        "ObjectMirror.upsert_workload": BUG,
        "cluster_worker.next_action": BUG,
        "cluster_worker.observed_status": BUG,
        "adoption_finder.adoption_answer_for_object": BUG,
        "cluster_objects.ClusterObjects.carry_out_action": BUG,
        "shape_asker.read_dry_run_answer": BUG,
        "transport.request": ODD,
    },
    "services/snapshot/tests/test_service.py": {"Collection.upsert_objects": BUG},
    "services/vk-bridge/tests/test_isolation.py": {
        "OwnerWorker._plan_writes": BUG,
        "PodWriter._create_real_pod": BUG,
        "Pools._note_failure": BUG,
        "UsageReporter.take_hours": BUG,
        "pod_conversion.convert_pod": BUG,
        "pod_writer.pod_step": BUG,
    },
    "tests/contract/test_bus.py": {"module.DefaultRecordBatchBuilder": LIBRARY_BEHIND},
    "tests/contract/test_restarts.py": {"coordinator.<step>": LIBRARY_BEHIND},
    "tests/path/test_failed_decisions.py": {"aftermath.retry_waiting_workload": BUG, "owner.<name>": BUG},
    "lab/simulation/spillway_simulation/oracle.py": {"cluster.api.answer_request": LOOKS_ON},
}
"""By file of tests, what is replaced in it that may be a function of ours, and why."""


def _modules_by_name(tree: ast.AST) -> dict[str, str]:
    """Returns the top package of each import by the name that the file gives it; of a relative import it is empty."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found.update(((one.asname or one.name).partition(".")[0], one.name.partition(".")[0]) for one in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                top = "" if level or module is None else module.partition(".")[0]
                found.update((one.asname or one.name, top) for one in names)
    return found


def _replacements(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Whose attribute is replaced, and its name; what is given as text is parsed. Assignments to fields, too."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "delattr")
                | ast.Attribute(value=ast.Name(id="mock"), attr="patch")
                | ast.Name(id="patch"),
                args=[ast.Constant(value=str(text)), *_],
            ):
                whole = ast.parse(text, mode="eval").body
                assert isinstance(whole, ast.Attribute), text
                yield whole.value, whole.attr
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr" | "object"), args=[target, name, *_]):
                yield target, name.value if isinstance(name, ast.Constant) else f"<{ast.unparse(name)}>"
            case ast.Assign(targets=[ast.Attribute(value=ast.Name() as target, attr=name)]):
                yield target, name


def _replaced_names(text: str) -> set[str]:
    """What tests replace that may be a function of ours: not what is in capitals, nor of Python's own library.

    Nor the fields of objects that a test made, by which fakes are told what to do, unless mypy says it is a method.
    """
    tree = ast.parse(text)
    modules, made_here = (
        _modules_by_name(tree),
        {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)},
    )
    assigned = {
        node.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign)
        for node in one.targets
        if isinstance(node, ast.Attribute)
    }
    found = set[str]()
    for target, name in _replacements(tree):
        root = next((node.id for node in ast.walk(target) if isinstance(node, ast.Name)), "")
        is_field = target in assigned and root not in modules
        of_library = modules.get(root, root) in sys.stdlib_module_names
        if not (is_field or of_library or root in made_here or name.strip("_").isupper()):
            found.add(f"{ast.unparse(target)}.{name}")
    return found | {line.partition(" = ")[0].strip() for line in text.splitlines() if "[method-assign" in line}


def _files_of_tests() -> Iterator[Path]:
    patterns = ("tests/**/*.py", "lab/**/*.py", "*/tests/**/*.py", "*/*/tests/**/*.py")
    for path in (path for pattern in patterns for path in ROOT.glob(pattern)):
        if ".venv" not in path.parts and path != Path(__file__):
            yield path


def test_tests_replace_nothing_of_ours_but_where_it_is_said_why() -> None:
    """Whoever wants another answer takes a fake of an adapter, an argument, or `calls_of` (conftest.py)."""
    found = {str(path.relative_to(ROOT)): _replaced_names(path.read_text()) for path in _files_of_tests()}
    assert {name: replaced for name, replaced in found.items() if replaced} == {
        name: set(reasons) for name, reasons in REPLACED.items()
    }


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ('from planner import service\nmonkeypatch.setattr(service, "decide", fake)', {"service.decide"}),
        ('monkeypatch.setattr("planner.service.decide", fake)', {"planner.service.decide"}),
        ('from .builders import Fleet\nwith patch.object(Fleet, "join"):\n    pass', {"Fleet.join"}),
        ('with mock.patch("hpa.service.Hpa"):\n    pass', {"hpa.service.Hpa"}),
        ('monkeypatch.setattr(made, "step", fake)', {"made.step"}),
        ("monkeypatch.setattr(made, step, fake)", {"made.<step>"}),
        ("import hpa.service as shell\nshell.decide = fake", {"shell.decide"}),
        ("made.step = step  # type: ignore[method-assign]", {"made.step"}),
        ('from planner import service\nmonkeypatch.setattr(service, "ROUNDS_MAX", 3)', set()),
        ('import os\nmonkeypatch.setattr(os, "getuid", fake)\nmonkeypatch.setattr("sys.argv", [])', set()),
        ("bus = LocalBus()\nbus.unavailable = True", set()),
    ],
)
def test_a_function_of_ours_that_a_test_replaces_is_noticed(lines: str, found: set[str]) -> None:
    assert _replaced_names(lines) == found
