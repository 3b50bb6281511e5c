"""Laws of the API reference."""

import importlib.util
import inspect

import pytest
from source import ROOT
from test_public_names import MODULES

spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/reference.py")
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)


def test_every_room_with_public_names_has_a_page():
    assert {*MODULES} <= {*reference.ROOMS}


@pytest.mark.parametrize("room", reference.ROOMS)
def test_every_public_name_is_in_the_reference(room):
    text = reference.page(room)
    module = importlib.import_module(room)
    for name in reference.public_names(module):
        assert f"\n## {name}\n" in text, name
        member = getattr(module, name)
        summary = reference.escaped((inspect.getdoc(member) or "").split("\n")[0])
        assert summary in text, name
    assert " at 0x" not in text and text.count("```") % 2 == 0


def test_methods_have_their_signature_and_examples():
    text = reference.page("bert_jax")
    assert "### Model.embed\n" in text and ">>> model.embed(" in text
    assert "\nModel.embed(\n    self,\n    texts: " in text


def test_markup_in_docstrings_is_text():
    def call(x: "list[int]" = []) -> None:  # noqa: B006
        """Rows [B, L] of <s> and `[B]`.

        Args:
          x: numbers, which
            go on.
        """

    assert reference.markdown(call) == (
        "Rows \\[B, L] of &lt;s> and `[B]`.\n\n**Args**\n\n- `x`: numbers, which go on."
    )
    assert reference.signature("call", call) == (
        "```python\ncall(x: list[int] = []) -> None\n```"
    )
