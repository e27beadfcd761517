"""The papers' performance models: which strategy and layout fit, and why."""
