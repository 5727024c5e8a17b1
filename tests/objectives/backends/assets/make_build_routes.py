"""Write build_routes.json: a list of build routes in TensorRT's documented format, about as long as a real one.

Run by hand: `python make_build_routes.py`. The format, the two knobs of the header of TensorRT 11.1, and a handful of
other names with their values are public; everything else, names, values, defaults and texts, is INVENTED here and
says so in its help. It drives tests of reading and choosing; it says nothing about what any version of TensorRT
offers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SWITCH = "[on|off]"
_PUBLIC = (
    ("conv_use_long_w", _SWITCH, "on", "public (header of 11.1): describe N,C,X,1 convolutions as N,C,1,X"),
    ("kgen:codegen:cuda_tile", "[0|1|2|3]", "1", "public (header of 11.1): use of the CUDA Tile code generator"),
    ("match_ragged_mha", _SWITCH, "on", "public name and values; the default is invented"),
    ("copy_ppg", _SWITCH, "on", "public name and values"),
    ("slice_fusion", _SWITCH, "on", "public name and values"),
    ("reshape_ppg", _SWITCH, "on", "public name, values are illustrative"),
    ("transpose_ppg", _SWITCH, "on", "public name, values are illustrative"),
    ("conv_lowering", _SWITCH, "on", "public name and values; the default is invented"),
    ("kgen:tiling", "[0|1|2]", "0", "public name and values; the default is invented"),
    ("cask_fusion:num_tactics", "int", "10", "public name and form; the default is invented"),
    ("peep:max", "[1|2|...]", "1", "public name; form and default are invented"),
)
# Every form that the reader must classify, in names that no library has.
_FORMS = (
    ("invented:int32", "int32_t", "4"),
    ("invented:counted", "[0|1|...]", "0"),
    ("invented:powers", "[1|2|4|...]", "2"),
    ("invented:any", "[int]", "0"),
    ("invented:auto_or_any", "[-1|int]", "-1"),
    ("invented:auto_off_any", "[-1|0|int]", "-1"),
    ("invented:words", "[auto|none|static|dynamic]", "auto"),
    ("invented:spaced", "[ on | off ]", "off"),
    ("invented:text", "[string]", ""),
    ("invented:file", "<path>", ""),
    ("invented:float", "[float]", "0.5"),
    ("invented:no_default", "[a|b]", ""),
    ("invented:default_elsewhere", "[1|2]", "7"),
    ("invented:single", "[on]", "on"),
)
_FAMILIES = ("fold", "fuse", "gra", "kgen:codegen", "kgen:sched", "layout", "mha_fusion", "concat_elim", "peep")
_INVENTED_FORMS = (
    ("[on|off]", "on"),
    ("[on|off]", "off"),
    ("[0|1|2]", "1"),
    ("[0|1|2|3]", "0"),
    ("[none|some|all]", "some"),
)
_TOTAL = 209  # what somebody counted in 11.1


def entries() -> list[dict[str, str]]:
    found = [_entry(name, allowed, default, text) for name, allowed, default, text in _PUBLIC]
    found += [_entry(name, allowed, default, "INVENTED, to cover a form") for name, allowed, default in _FORMS]
    for number in range(_TOTAL - len(found)):
        allowed, default = _INVENTED_FORMS[number % len(_INVENTED_FORMS)]
        name = f"{_FAMILIES[number % len(_FAMILIES)]}:invented_{number:03d}"
        found.append(_entry(name, allowed, default, "INVENTED"))
    return found


def _entry(name: str, allowed: str, default: str, text: str) -> dict[str, str]:
    return {"option": f"-{name}", "allowed_values": f"-{name}={allowed}", "default_value": default, "help": text}


def main() -> None:
    document: dict[str, Any] = {"tuner_version": "0.0.0-invented", "tuner_options": entries()}
    lines = ",\n".join("  " + json.dumps(entry) for entry in document["tuner_options"])
    text = f'{{"tuner_version": {json.dumps(document["tuner_version"])},\n "tuner_options": [\n{lines}\n ]}}\n'
    (Path(__file__).parent / "build_routes.json").write_text(text)


if __name__ == "__main__":
    main()
