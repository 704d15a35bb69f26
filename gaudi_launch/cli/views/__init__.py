"""Views of results: tables, JSON and pictures, one module per command."""
