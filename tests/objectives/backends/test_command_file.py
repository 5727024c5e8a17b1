"""Descriptions of programs: what a file may say, and that everything wrong is said with file, knob and remedy."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from objectives.backends.command_file import read_description
from objectives.backends.command_handover import Launch, handed_over, launch
from objectives.errors import InputError
from objectives.knobs import KnobKind
from tests.programs import KNOBS, describe

TOML = """
program = ["python3", "measure.py", "--data", "lists/names.txt"]
files = ["network.py"]
environment = ["python3", "measure.py", "--versions"]
device = "cuda:0"
rounds = true

[[knobs]]
name = "unroll"
values = [0, 4, 8.5, true]
default = 4
flag = "--unroll={value}"
kind = "runtime"
help = "how often"

[[knobs]]
name = "lto"
values = ["off", "thin", "full"]
default = "off"
flags = { thin = "-flto=thin", full = ["-flto", "-fno-fat-lto-objects"], off = [] }
join = "CXXFLAGS"
"""


def level(**changes: Any) -> dict[str, Any]:
    return {**KNOBS[0], **changes}


def without(key: str, **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in level(**changes).items() if name != key}


class TestReading:
    @pytest.fixture
    def toml(self, tmp_path: Path) -> Path:
        (tmp_path / "lists").mkdir()
        for name in ("measure.py", "network.py", "lists/names.txt"):
            (tmp_path / name).write_text("x")
        (tmp_path / "tune.toml").write_text(TOML)
        return tmp_path / "tune.toml"

    def test_a_whole_file(self, toml: Path) -> None:
        found = read_description(toml)
        assert found.program == ("python3", "measure.py", "--data", "lists/names.txt")
        assert found.files == ("measure.py", "lists/names.txt", "network.py")
        assert (found.environment[-1], found.device, found.rounds) == ("--versions", "cuda:0", True)
        unroll, lto = found.space.knobs
        assert (unroll.values, unroll.default) == (("0", "4", "8.5", "true"), "4")
        assert (unroll.kind, unroll.help, lto.kind) == (KnobKind.RUNTIME, "how often", KnobKind.BUILDER)
        assert found.variables == ("CXXFLAGS",)

    def test_what_is_not_said_is_plain(self, tmp_path: Path) -> None:
        found = read_description(describe(tmp_path))
        assert (found.device, found.rounds, found.environment) == ("cpu", False, ())
        assert found.files == ("measure.py",)

    def test_values_become_flags_and_variables(self, tmp_path: Path) -> None:
        found = read_description(describe(tmp_path))
        default = {"level": "1", "fast": "default", "mode": "plain"}
        assert launch(found.handovers, default) == Launch(("--level=1",))
        assert handed_over(found.handovers, default) == ("level",)
        changed = launch(found.handovers, {"level": "3", "fast": "on", "mode": "wild"})
        assert changed == Launch(("--level=3",), {"MODE": "wild"}, {"DEMOFLAGS": ("--fast", "--really")})

    def test_what_the_user_has_comes_first(self) -> None:
        found = Launch((), {"MODE": "b"}, {"XFLAGS": ("--x", "--y"), "NEW": ("--z",)})
        given = {"XFLAGS": "--mine='a  b'", "MODE": "a", "OTHER": "c"}
        wanted = {"XFLAGS": "--mine='a  b' --x --y", "MODE": "b", "NEW": "--z", "OTHER": "c"}
        assert found.environment(given) == wanted
        assert given["MODE"] == "a"

    def test_several_knobs_join_in_their_order(self, tmp_path: Path) -> None:
        knobs = [level(join="F"), level(name="more", join="F", flag="-m {value}"), level(name="none", join="F", omit=1)]
        found = read_description(describe(tmp_path, knobs=knobs))
        assert launch(found.handovers, {"level": "2", "more": "3", "none": "1"}).joined == {"F": ("--level=2", "-m 3")}

    def test_the_script_runs_the_same(self, tmp_path: Path) -> None:
        program = tmp_path / "show it.py"
        program.write_text(f"#!{sys.executable}\nimport os, sys\nprint(sys.argv[1:], os.environ['A'], os.environ['F'])")
        script = tmp_path / "run.sh"
        added = Launch(("--x=a b", "$HOME"), {"A": "it's"}, {"F": ("--one", "--two")})
        script.write_text(added.script(["show it.py", "-v"], ["show it.py"]))
        ran = subprocess.run(["sh", script, "more"], cwd="/", env={"F": "--mine"}, capture_output=True, text=True)
        assert ran.stdout == "['-v', '--x=a b', '$HOME', 'more'] it's --mine --one --two\n"
        assert program.stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"program": []}, "program is no command"),
        ({"program": ["python3", ""]}, "program is no command"),
        ({"program": "python3 measure.py"}, r"Expected `array`, got `str` - at `\$.program`"),
        ({"program": ["../measure.py"]}, "outside the file's folder"),
        ({"environment": ["python3", "a/../../b.py"]}, "outside the file's folder"),
        ({"files": ["missing.py"]}, "files names 'missing.py', which is no file"),
        ({"files": ["/etc/hosts"]}, "files names '/etc/hosts', outside"),
        ({"files": ["a/../../b"]}, "outside"),
        ({"files": ["tune.json"]}, "the name 'tune.json' is taken"),
        ({"device": "the second GPU"}, "is no device"),
        ({"format": 2}, "has format 2"),
        ({"round": True}, "unknown field `round`"),
        ({"knobs": []}, "has no knobs"),
        ({"knobs": [without("name")]}, "knob number 1: .*required field `name`"),
        ({"knobs": [level(name="a b")]}, "knob 'a b': this cannot be a name"),
        ({"knobs": [level(name="-a")]}, "knob '-a': this cannot be a name"),
        ({"knobs": [level(vales=[1])]}, "knob 'level': .*unknown field `vales`"),
        ({"knobs": [level(kind="speed")]}, "knob 'level': there is no kind 'speed'"),
        ({"knobs": [level(values=[1])]}, "knob 'level': there is nothing to choose from"),
        ({"knobs": [level(values=[1, "1"])]}, "knob 'level' lists a value twice"),
        ({"knobs": [level(default=4)]}, "knob 'level': default '4' is not among"),
        ({"knobs": [level(), level()]}, "names level twice"),
        ({"knobs": [without("flag")]}, "knob 'level': nothing says how its values reach the program"),
        ({"knobs": [level(variable="A")]}, "knob 'level': it has flag and variable"),
        ({"knobs": [level(flag="--level")]}, "knob 'level': flag '--level' does not say where the value goes"),
        ({"knobs": [without("flag", variable="A-B")]}, "knob 'level': 'A-B' is no environment variable"),
        ({"knobs": [level(join="A B")]}, "knob 'level': 'A B' is no environment variable"),
        ({"knobs": [without("flag", variable="A", join="B")]}, "knob 'level': join goes with flag or flags"),
        ({"knobs": [level(omit=[7, 8])]}, "knob 'level': omit names 7, 8, no value of it"),
        ({"knobs": [without("flag", flags={"1": "a", "2": "b"})]}, "knob 'level': flags says nothing about '3'"),
        ({"knobs": [without("flag", flags={"9": "a"})]}, "knob 'level': flags names '9'"),
        ({"knobs": [without("flag", flags={"1": "a\0b", "2": [], "3": []})]}, "knob 'level': .*NUL"),
        (
            {"knobs": [without("flag", variable="A"), without("flag", name="other", variable="A")]},
            "knobs 'level', 'other' all set A",
        ),
        ({"knobs": [without("flag", variable="A"), level(name="other", join="A")]}, "knobs 'level', 'other' all set A"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as error:
        read_description(describe(tmp_path, **changes))
    assert "tune.json" in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("tune.toml", "program = [", "is not TOML"),
        ("tune.json", "{", "is not JSON"),
        ("tune.toml", "\udcff", "cannot read"),
        ("model.onnx", "\x08\x07", "is not TOML"),
        ("tune.json", "[]", "Expected `object`"),
    ],
)
def test_files_that_are_something_else(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=words) as error:
        read_description(tmp_path / name)
    assert error.value.hint


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    path = describe(tmp_path)
    content = json.loads(path.read_text())
    lines = [f"program = {json.dumps(content['program'])}"]
    for knob in content["knobs"]:
        lines += ["[[knobs]]"]
        for key, value in knob.items():
            shown = "{ on = ['--fast', '--really'] }" if isinstance(value, dict) else json.dumps(value)
            lines.append(f"{key} = {shown}")
    (tmp_path / "tune.toml").write_text("\n".join(lines))
    assert read_description(tmp_path / "tune.toml") == read_description(path)


STUDIED = Path(__file__).parents[3] / "benchmarks" / "h200" / "xla"


@pytest.mark.parametrize(("name", "fewest"), [("knobs.toml", 60), ("knobs-cpu.toml", 6)])
def test_the_description_of_the_benchmark_is_sound(name: str, fewest: int) -> None:
    """Its defaults hand over nothing at all, and each other value hands over one option that names its knob."""
    found = read_description(STUDIED / name)
    options = [one for one in found.handovers if one.variable == "XLA_FLAGS"]
    assert len(options) >= fewest
    assert launch(found.handovers, {knob.name: knob.default for knob in found.space.knobs}) == Launch()
    for knob, handover in zip(found.space.knobs, found.handovers, strict=True):
        assert set(handover.parts) == set(knob.values) - {knob.default}
        start = f"--{knob.name}="
        assert all(len(parts) == 1 and parts[0].startswith(start) for parts in handover.parts.values())
        assert len(set(handover.parts.values())) == len(handover.parts)
