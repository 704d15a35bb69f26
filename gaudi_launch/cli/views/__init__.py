"""How results are shown: tables, JSON and pictures, one module per command."""
