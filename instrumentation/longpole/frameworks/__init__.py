"""Bridges from frameworks whose own account of their work is not OpenTelemetry.

Each is one file, imported by whoever uses the framework. A bridge makes the framework's steps
spans and puts the wrapped client's calls inside them; it makes no span for a model call, so each
is counted once. Frameworks that emit OpenTelemetry by themselves need none: docs/frameworks.md.
"""
