"""Text -> sentences, by Wikimedia's sentencex."""

import sentencex


def split(text: str) -> list[str]:
    """The sentences of a paragraph, without the blanks around them.

    English rules for abbreviations; the stops of other scripts (。！？ । ؟) end a
    sentence too.
    """
    pieces = (piece.strip() for piece in sentencex.segment("en", text))
    return [piece for piece in pieces if piece]
