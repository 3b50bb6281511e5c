"""A made-up language to translate English into, with few words and strict grammar.

    the small dog sees a red cat today  ->  heno ilo kudo mino ila zata rufa veko

The adverb comes first and the verb last; adjectives follow their noun. Every noun has
one of two genders, which gives its articles and adjectives the ending -o or -a; the
verb has the ending of its subject. So a translator has to learn words, word order, and
agreement over a distance.
"""

import random
from collections.abc import Sequence
from pathlib import Path

# English -> stem. Nouns take no ending.
NOUNS = {
    "dog": "kudo",
    "cat": "zata",
    "bird": "pilo",
    "horse": "tema",
    "child": "nero",
    "queen": "sola",
    "king": "falo",
    "fox": "giva",
    "bear": "bruno",
    "mouse": "mika",
    "fish": "oxo",
    "snake": "essa",
}
ADJECTIVES = {
    "small": "min",
    "red": "ruf",
    "old": "vet",
    "quick": "pras",
    "happy": "lum",
    "quiet": "tac",
    "strong": "fort",
    "green": "verd",
}
VERBS = {
    "sees": "vek",
    "likes": "dal",
    "follows": "sek",
    "hears": "ond",
    "finds": "tro",
    "fears": "pav",
}
ARTICLES = {"the": "il", "a": "un", "this": "kest"}
ADVERBS = {"today": "heno", "often": "sov", "here": "kih", "again": "rit"}

Pair = tuple[str, str]


def words() -> list[str]:
    """Every word of both languages, sorted."""
    english = {*NOUNS, *ADJECTIVES, *VERBS, *ARTICLES, *ADVERBS}
    stems = [*ADJECTIVES.values(), *VERBS.values(), *ARTICLES.values()]
    ended = {stem + end for stem in stems for end in "oa"}
    return sorted(english | ended | {*NOUNS.values()} | {*ADVERBS.values()})


def sentences(count: int, seed: int) -> list[Pair]:
    """`count` different sentences with their translations."""
    draw = random.Random(seed)
    pairs: dict[str, str] = {}
    while len(pairs) < count:
        english, translation = sentence(draw)
        pairs[english] = translation
    return list(pairs.items())


def sentence(draw: random.Random) -> Pair:
    """A sentence and its translation."""
    subject, translated_subject, end = _noun_phrase(draw)
    verb = draw.choice(list(VERBS))
    thing, translated_object, _ = _noun_phrase(draw)
    adverb = draw.choice([[], [], *([x] for x in ADVERBS)])
    english = [*subject, verb, *thing, *adverb]
    translated = [ADVERBS[x] for x in adverb]
    translated += [*translated_subject, *translated_object, VERBS[verb] + end]
    return " ".join(english), " ".join(translated)


def _noun_phrase(draw: random.Random) -> tuple[list[str], list[str], str]:
    """The words of a noun phrase, their translation, and the ending of its gender."""
    article, noun = draw.choice(list(ARTICLES)), draw.choice(list(NOUNS))
    adjectives = draw.sample(list(ADJECTIVES), draw.choice([0, 0, 1, 1, 2]))
    end = NOUNS[noun][-1]
    described = [ADJECTIVES[x] + end for x in adjectives]
    translated = [ARTICLES[article] + end, NOUNS[noun], *described]
    return [article, *adjectives, noun], translated, end


def read_pairs(path: str | Path) -> list[Pair]:
    """A file of lines `text<TAB>translation`."""
    pairs = []
    try:
        lines = Path(path).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); check the path") from None
    for number, line in enumerate(lines, 1):
        parts = line.split("\t")
        if len(parts) != 2 or not all(part.strip() for part in parts):
            raise ValueError(
                f"{path}, line {number} has {len(parts)} columns, or an empty one; "
                "write a text, a tab and its translation"
            )
        pairs.append((parts[0], parts[1]))
    if not pairs:
        raise ValueError(f"{path} holds no line; give it some")
    return pairs


def overlap(held_out: Sequence[Pair], train: Sequence[Pair]) -> int:
    """The number of held-out texts that are training texts, too."""
    return len({text for text, _ in held_out} & {text for text, _ in train})
