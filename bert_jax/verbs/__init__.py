"""The verbs of `predict.Model`, one file each."""
