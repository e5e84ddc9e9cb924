"""Tokens that their holder can narrow and nobody can widen (macaroons). See docs/tokens.md; no I/O here."""
