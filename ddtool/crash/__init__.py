"""Crash verdicts: lines → events → attempts → first cause, cascade, evidence (signatures are data)."""
