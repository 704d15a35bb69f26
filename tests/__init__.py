"""The tests of the launcher."""

import pytest

# before any helper is imported: an assertion in one shows its values as one in a test does
pytest.register_assert_rewrite("tests.support")
