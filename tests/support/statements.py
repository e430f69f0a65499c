"""Every statement that a verdict's sentence or a card may print, and what makes it true.

`untrue` takes a text apart and holds each statement against the `Evidence` of the model. A text
that has a statement unknown here is an error, so that no new wording goes unchecked.
"""

import re
from collections.abc import Callable

from support.evidence import ENOUGH, Evidence

NEAR = 0.07  # a share or proportion of some hundred documents, against that of others
HALF, NONE, NOTABLE = 0.5, 0.05, 0.25
DIRECT = ("key", "query")
NUMBER = r"(−?[\d.]+)"
PERCENT = r"(?:> )?(−?\d+) ?%"
SURE = rf"(?: \({PERCENT}(?: of resamples)?\))?"
Check = Callable[..., bool]


def untrue(text: str, so: Evidence) -> list[str]:
    """Return the statements of a verdict's sentence that are not so."""
    parts = [
        part for half in text.split(": ", 1) for part in re.split(r"; |, (?=\d+ % also)", half)
    ]
    wrong = []
    for part in parts:
        found = [(re.fullmatch(pattern, part), check) for pattern, check in STATEMENTS.items()]
        matched = [(match, check) for match, check in found if match]
        assert len(matched) == 1, f"nothing says when this is true: {part!r}"
        ((match, check),) = matched
        if not check(so, *match.groups()):
            wrong.append(part)
    return wrong


def near(text: str, value: float, by: float = NEAR) -> bool:
    """Tell whether a printed percentage or number of points is about a value."""
    return abs(float(text.replace("−", "-")) / 100 - value) <= by


def _induction(so: Evidence, *_: str) -> bool:
    return so.layers > 1 and so.most("value") >= HALF - NEAR and so.loss >= ENOUGH - 0.02


def _association(so: Evidence, *_: str) -> bool:
    return so.layers > 1 and so.most("next_key") >= HALF - NEAR and so.loss >= ENOUGH - 0.02


def _direct(so: Evidence, *_: str) -> bool:
    at_each = [so.back[n, "key"] + so.back[n, "query"] for n in range(1, so.layers)]
    return all(x >= HALF - NEAR for x in at_each) and so.loss >= ENOUGH - 0.02


def _mixed(so: Evidence, *_: str) -> bool:
    """No layer's input has one mechanism's roles alone that bring half back."""
    for n in range(1, so.layers):
        shares = [
            so.back[n, "value"],
            so.back[n, "next_key"],
            so.back[n, "key"] + so.back[n, "query"],
        ]
        *others, most = sorted(shares)
        if most < HALF + NEAR or others[-1] >= 0.4 - NEAR:
            return True
    return so.layers == 1 and so.back[1, "query"] < HALF + NEAR


def _unsolved(so: Evidence, *_: str) -> bool:
    return so.loss < ENOUGH + 0.02


def _lost(so: Evidence, points: str, limit: str, low: str | None, high: str | None) -> bool:
    error = 3 * so.lost.std() / len(so.lost) ** 0.5 + 0.002
    inside = low is None or (
        float(low.replace("−", "-")) / 100 - error <= so.loss
        and so.loss <= float(high.replace("−", "-")) / 100 + error
    )
    return near(points, so.loss, 0.03) and limit == "20" and inside


def _no_use(so: Evidence, *numbers: str) -> bool:
    return abs(so.loss) < NONE and _lost(so, *numbers)


def _some_use(so: Evidence, *numbers: str) -> bool:
    error = 3 * so.lost.std() / len(so.lost) ** 0.5
    return so.loss > error and _lost(so, *numbers)


def _retrieves(so: Evidence, layer: str, *_: str) -> bool:
    """The query has nothing before the layer, most behind it, and no other layer adds as much."""
    rises = {n: so.rise(n) for n in range(so.layers)}
    others = [rise for n, rise in rises.items() if n != int(layer)]
    return rises[int(layer)] >= HALF - NEAR and max(others, default=0.0) < NOTABLE + NEAR


def _shared(so: Evidence, layers: str, shares: str) -> bool:
    """Each layer adds at the query what is printed; the last one what was not there before."""
    numbers = re.findall(rf"(\d+){KIND}(?: and |$)", layers)
    pairs = list(zip(numbers, re.findall(PERCENT, shares), strict=True))
    return all(near(share, so.rise(int(n)), 0.1) for n, share in pairs)


def _also(so: Evidence, share: str, name: str) -> bool:
    roles = {"direct retrieval": DIRECT, "induction": ("value",)}.get(name, ("next_key",))
    firsts = [sum(max(so.back[n, r], 0) for r in roles) for n in range(1, so.layers)]
    return any(near(share, x) for x in firsts)


def _split(so: Evidence, *parts: str) -> bool:
    names = {"induction": ("value",), "direct retrieval": DIRECT}
    names["association at next_key"] = ("next_key",)
    numbers = zip(parts[::2], parts[1::2], strict=True)
    return all(near(share, so.served(*names[name]), 0.1) for name, share in numbers if name)


KIND = r"(?: \([\w|\[\]=,.]+\))?"  # the layer's mixer, in a model whose layers differ
INTERVAL = rf"(?: \[{NUMBER}, {NUMBER}\])?"
LOST = rf"corrupting it takes {NUMBER} of the {NUMBER} points required{INTERVAL}"
SERVED = rf"(induction|direct retrieval|association at next_key) in {PERCENT}"
STATEMENTS: dict[str, Check] = {
    rf"induction{SURE}": _induction,
    rf"association at next_key{SURE}": _association,
    rf"direct retrieval{SURE}": _direct,
    rf"mixed{SURE}": _mixed,
    rf"unsolved{SURE}": _unsolved,
    "each key is stored with its value": lambda so: so.most("value") >= HALF - NEAR,
    "key and value are joined one token after the pair": lambda so: (
        so.most("next_key") >= HALF - NEAR
    ),
    "nothing is stored at the value": lambda so: so.most("value", "next_key") < NONE + 0.02,
    rf"{PERCENT} is also restored at the (value|next key)": lambda so, share, role: near(
        share, so.most(role.replace(" ", "_"))
    ),
    rf"{PERCENT} also by (.*)": _also,
    rf"layer (\d+){KIND} looks the pair up later{SURE}": _retrieves,
    rf"layer (\d+){KIND} finds them there{SURE}": _retrieves,
    rf"layer (\d+){KIND} carries the answer straight to the query{SURE}": _retrieves,
    r"retrieved in layers (.+) \(([^)]*) restored\)": _shared,
    "with one layer the architecture allows no other": lambda so: so.layers == 1,
    rf"mixed in {PERCENT} of documents": lambda so, share: near(
        share, 1 - so.served("value") - so.served(*DIRECT) - so.served("next_key"), 0.1
    ),
    rf"only {PERCENT} of documents lose 20 points or more": lambda so, share: near(
        share, float((so.lost >= ENOUGH).mean()), 0.1
    ),
    rf"uses the key, but below the threshold: {LOST}": _some_use,
    rf"shows no use of the key: {LOST}": _no_use,
    rf"may or may not use the key: {LOST}": lambda so, *numbers: _lost(so, *numbers),
    rf"{SERVED} of documents \[.*\], {SERVED} \[.*\]": _split,
    r"each of the \d+ documents that lose enough is judged alone": lambda so: True,
}


def untrue_on_card(text: str, so: Evidence) -> list[str]:
    """Return the statements of a card's sentence that are not so."""
    for pattern, check in CARD.items():
        if match := re.fullmatch(pattern, text):
            return check(so, *match.groups())
    raise AssertionError(f"nothing says when this is true: {text!r}")


def _summary(so: Evidence, accuracy: str, rest: str) -> list[str]:
    wrong = [] if near(accuracy, so.accuracy, 0.05) else [f"answers {accuracy}% correctly"]
    return wrong + untrue(rest, so)


def _held(so: Evidence, places: str) -> list[str]:
    """Each place holds what is printed, and no place that holds as much is left out."""
    wrong = []
    for part in places.split("; "):
        if match := re.fullmatch(r"at the input of layer (\d+) by (.*)", part):
            layer, holders = int(match[1]), match[2]
        else:
            layer, holders = so.layers, part.removeprefix("after the last layer by ")
        named = re.findall(r"the (\w+(?: key)?)[ ,]+\(?([\d−]+)%", holders)
        assert named, f"nothing says when this is true: {part!r}"
        right = all(near(share, so.back[layer, role.replace(" ", "_")]) for role, share in named)
        others = {role for n, role in so.back if n == layer} - {
            r.replace(" ", "_") for r, _ in named
        }
        if not right or max((so.back[layer, role] for role in others), default=0.0) >= HALF + NEAR:
            wrong.append(part)
    return wrong


def _carried(so: Evidence, layer: str, site: str, role: str, *rest: str) -> list[str]:
    share, at_key, end = rest
    name, place = f"blocks.{layer}.mixer.{site}", role.replace(" ", "_")
    before = so.back[int(layer), place]
    right = near(share, so.inside[name, place]) and near(at_key, so.inside[name, "key"])
    if end.startswith("The short convolution has carried"):
        right &= so.inside[name, place] >= HALF - NEAR > before and f"to the {role}," in end
    elif end.startswith("The key was there before"):
        right &= before >= HALF - NEAR
    else:
        joined = [so.inside[name, r] for r in ("value", "next_key")]
        right &= end.startswith("Nothing shows that") and max(joined) < HALF + NEAR
    return [] if right else [end]


CARD: dict[str, Callable[..., list[str]]] = {
    r"On .* it answers ([\d.]+)% of the documents correctly(?:, by|;) (.*)\.": _summary,
    r"The key's information is held (.*)\.": _held,
    r"Layer (\d+): restoring (\w+) at the ([a-z ]+) brings back (−?\d+)%, at the key itself "
    r"(−?\d+)%\. (.*)": _carried,
    r"A share above 100 % .*": lambda so: [] if max(so.back.values()) > 0.98 else ["above"],
}
