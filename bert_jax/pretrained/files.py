"""JSON files, read with errors that say what to do."""

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(
            f"{path.parent} has no {path.name}; is it a model's directory?"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); fetch it again") from error


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object; fetch it again")
    return value


def write_json(path: Path, value: Any) -> None:
    """Writes a value as people like to read it."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")
