"""A made-up language to translate English into, with few words and strict grammar.

    the small dog sees a red cat today  ->  heno ilo kudo mino ila zata rufa veko

The adverb comes first and the verb last; adjectives follow their noun. Every noun has
one of two genders, which gives its articles and adjectives the ending -o or -a; the
verb has the ending of its subject. So a translator has to learn words, word order, and
agreement over a distance.
"""

import random
from collections.abc import Sequence

from examples.translation.pair_files import Pair

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


def alignment(text: str) -> list[int]:
    """For each word of the translation, the place of the word that it translates.

    >>> alignment("the small dog sees a red cat today")
    [7, 0, 2, 1, 4, 6, 5, 3]
    """
    english = text.split()
    verb = next(i for i, word in enumerate(english) if word in VERBS)
    end = len(english) - (english[-1] in ADVERBS)

    def phrase(start, end):
        return [start, end - 1, *range(start + 1, end - 1)]

    adverb = range(end, len(english))
    return [*adverb, *phrase(0, verb), *phrase(verb + 1, end), verb]


def overlap(held_out: Sequence[Pair], train: Sequence[Pair]) -> int:
    """The number of held-out texts that are training texts, too."""
    return len({text for text, _ in held_out} & {text for text, _ in train})
