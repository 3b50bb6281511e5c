"""Continues a prompt: python -m examples.gpt --model=DIR --prompt="To be"."""

import argparse
import sys

from examples.gpt.language_model import LanguageModel


def main() -> None:
    """Prints a prompt and its continuation."""
    parser = argparse.ArgumentParser("python -m examples.gpt", description=__doc__)
    parser.add_argument("--model", required=True, help="a run, or a GPT's directory")
    parser.add_argument("--prompt", required=True, help="the beginning of the text")
    parser.add_argument("--tokens", type=int, default=200, help="how many to write")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: likeliest")
    parser.add_argument("--top_k", type=int, default=0, help="likeliest tokens; 0: all")
    parser.add_argument("--top_p", type=float, default=1.0, help="their probability")
    options = vars(parser.parse_args())
    model, prompt = options.pop("model"), options.pop("prompt")
    try:
        print(prompt + LanguageModel.load(model).continue_text(prompt, **options))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
