"""No secret survives in any form that engines, shells, clouds and configuration files write.

Logs stay readable."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.redact import (
    LONGEST_WORD,
    REMOVED,
    is_secret_name,
    redact_text,
    secret_kind,
)
from gaudi_launch.core.base.redact_values import redact_arguments, redact_document
from tests.support.cli import golden
from tests.support.places import TESTS, TOP
from tests.support.secret_forms import drawn_settings

# S is the secret. Each is a form of security.md P1-2, or one of its neighbours.
NAMED = [
    "{'api_key': ['first', 'S']}",
    '{"api_key": ["first", "S", "third"]}',
    "Namespace(host=None, api_key=['S'], port=1)",
    "Namespace(host=None, api_key='S', port=1)",
    'api_key="a \\"S\\""',
    "api_key=SecretStr('S')",
    "password=b'S'",
    "Authorization: Token S",
    "Authorization: ApiKey S",
    "Authorization: Basic S",
    'Authorization: Digest username="u", response="S"',
    'curl -H "Authorization: Token S" http://h/v1',
    "Proxy-Authorization: Basic S",
    "[(b'authorization', b'Bearer S')]",
    "[('Cookie', 'S')]",
    "Cookie: session=S; a=b",
    "Set-Cookie: id=S; Path=/",
    "Bearer S",
    "X-Auth-Token: S",
    "x-api-key: S",
    '{\\"api_key\\": \\"S\\"}',
    '{\\\\\\"api_key\\\\\\": \\\\\\"S\\\\\\"}',
    "\\u0022api_key\\u0022:\\u0022S\\u0022",
    "%22api_key%22%3A%22S%22",
    '{"password":"a\\\\","x":"y","token":"S"}',
    '{"api_key": {"v": "S"}}',
    '{"password": {"v": ["S"]}}',
    '"accessToken":"S"',
    '"clientSecret" : "S"',
    '{"name": "--x-password", "value": "S"}',
    '{"value": "S", "name": "--x-password"}',
    '"--ssl-keyfile-password", "S"',
    "['--x-password', 'S', '--port', '1']",
    "--x-password S",
    "--x-password=S",
    "--x-password 'S'",
    '--api-key "a b S"',
    "--x-password 'it'\"'\"'S'",
    "PASSPHRASE=S",
    "PASSWORD=a,b;c&S",
    "'PASSWORD=a b S'",
    "export HF_TOKEN=S",
    "ENV HF_TOKEN S",
    "set -x HF_TOKEN S",
    "os.environ['HF_TOKEN'] = 'S'",
    "DB_PASS=S",
    "MYSQL_PWD=S",
    "AWS_SECRET_ACCESS_KEY=S",
    "aws_session_token = S",
    "AccountKey=S;EndpointSuffix=core",
    "requirepass S",
    "machine h login u password S",
    "password S",
    "login with password S now",
    "the password is S",
    "password: S",
    "password => S",
    "<password>S</password>",
    "密码：S",
    'password="""S"""',
    "token=\x1b[31mS\x1b[0m",
    "password: |\n  S\nnext: 1",
    "api_keys:\n  - a\n  - S\nport: 1",
    "- name: HF_TOKEN\n  value: S",
    "client-key-data: S",
    "//registry.npmjs.org/:_authToken=S",
    '{"auths": {"registry": {"auth": "S"}}}',
    "https://u:p@S@host/x",
    "https://u:S@host",
    "https://S@host",
    "https://u:a/S@host/x",
    "http://h/p?token=S&x=1",
    "http://h/p?x=1&api_key=S",
    "https://b.s3.amazonaws.com/k?X-Amz-Signature=S&x=1",
    "https://x.blob.core.windows.net/c?sv=1&sig=S%3D",
    "https://hooks.slack.com/services/S",
    "curl -u user:S http://h",
    "sshpass -p S ssh h",
    "-----BEGIN RSA PRIVATE KEY-----\nS\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nS\n-----END PGP PRIVATE KEY BLOCK-----",
    '"key": "-----BEGIN PRIVATE KEY-----\\nS\\n-----END PRIVATE KEY-----"',
    "-----BEGIN OPENSSH PRIVATE KEY-----\nS",
    "S\n-----END PRIVATE KEY-----",
]
# known by their own form, without a name
_TAIL = "0aB1cD2eF3gH4iJ5kL6mN7oP8qR9"
PREFIXES = (
    "hf_ ghp_ gho_ ghu_ ghs_ ghr_ glpat- npm_ pypi-AgEI dckr_pat_ sk- sk-proj- sk-ant-api03- nvapi-"
    " gsk_ AIza ya29. LTAI xoxb-12- xoxp-12- xapp-1- sk_live_ hvs."
)
FORMS = [
    "AKIA0123456789ABCDEF",
    "ASIA0123456789ABCDEF",
    f"github_pat_{_TAIL}_{_TAIL}",
    *(f"{before}{_TAIL}" for before in PREFIXES.split()),
    "ms-01234567-89ab-cdef-0123-456789abcdef",
    f"eyJhbGciOi.eyJzdWIi.{_TAIL}",
]
SECRETS = ("s3cr3tW0rdZZ9xQ41k", "plainwordsecretxyz")


def _with(form: str, secret: str) -> str:
    """Return the form with its stand-alone S replaced."""
    return (
        "INFO start\n"
        + re.sub(r"(?<![A-Za-z])S(?![A-Za-z])", lambda _: secret, form)
        + "\nINFO end\n"
    )


@pytest.mark.parametrize("secret", FORMS)
@pytest.mark.parametrize(
    "around", ["{}", "got {} here", "'{}'", '"{}"', "x={},y", "({})", "/{}/", "{}\n"]
)
def test_a_secret_with_a_form_of_its_own_is_removed(secret: str, around: str) -> None:
    text = redact_text(around.format(secret))
    assert secret not in text
    assert REMOVED in text


# lines as engines, shells and this program write them
ORDINARY = """\
INFO 11-20 01:02:03 [config.py:1904] Chunked prefill is enabled with max_num_batched_tokens=2048.
INFO 11-20 [api_server.py:1] args: Namespace(tokenizer=None, tokenizer_mode='auto', api_key=None, hf_token=None)
INFO [metrics.py:486] Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 45.6 tokens/s, Running: 1
WARNING [tokenizer.py:251] No tokenizer found in /models/tiny, using base model tokenizer instead. token ids: 1 2 3
ValueError: Total number of prompt tokens: 5000 is greater than max_model_len: 4096
"eos_token_id": 128001, "bos_token": "<s>", "pad_token": "</s>", "special_tokens_map": {"unk_token": "<unk>"}
--max-num-batched-tokens 8192 --tokenizer-mode auto --max-model-len=16384 --tokens-per-step 4
{"max_tokens": 5, "prompt_tokens": 7, "completion_tokens": 12, "total_tokens": 19, "num_tokens": 1}
INFO tokens: 128, token: 5, num_new_tokens=1, max_tokens=None, TTFT per output token: 33.1 ms
hf_overrides=None, hf_config_path=None, hf_transfer is enabled, task-12345678 and disk-image-2024
Basic configuration done; bearer authentication is off; basic information about the model
WARNING password authentication failed: password required, password must be set
/run/secrets/x is the --api-key-file /run/secrets/x and secret_name: my-names
git+https://github.com/HabanaAI/vllm-fork.git@aice/v1.21.0 and http://127.0.0.1:8000/v1/models
FutureWarning: key_cache and value_cache: kv key: 3, cache key abcdef, primary key 7
PWD=/root/work
docker run --user 1000:1000 -u 0.0.0.0 image
signature: low_nofile, inspect.signature=None
uses auth: none, auth: bearer
"""  # noqa: E501


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_lines_stay_as_they_are(line: str) -> None:
    assert redact_text(line) == line


_LOGS = sorted((TESTS / "data" / "logs").glob("*.txt.gz"))


def test_there_are_recorded_logs() -> None:
    assert len(_LOGS) > 20


@pytest.mark.parametrize("log", _LOGS, ids=lambda path: path.stem)
def test_recorded_logs_of_engines_stay_as_they_are(log: Path) -> None:
    text = gzip.decompress(log.read_bytes()).decode(errors="replace")
    assert redact_text(text) == text


def test_what_surrounds_a_secret_stays() -> None:
    line = "vllm serve --api-key SECRET1 --port 80 --hf-token=SECRET2 --max-num-seqs 4"
    assert redact_text(line) == (
        f"vllm serve --api-key {REMOVED} --port 80 --hf-token={REMOVED} --max-num-seqs 4"
    )


def test_a_redacted_text_is_not_redacted_again() -> None:
    once = redact_text("\n".join(_with(form, SECRETS[0]) for form in NAMED))
    assert redact_text(once) == once
    assert "[removed]]" not in redact_text(
        '{"a": "Bearer s3cr3t-value"} Authorization: Bearer s3cr3t-value'
    )


def test_the_value_in_the_next_element_is_removed() -> None:
    words = "serve --ssl-keyfile-password {} --hf-token={} --port 80 --tokenizer t"
    found = redact_arguments(words.format("S1", "S2").split())
    assert found == words.format(REMOVED, REMOVED).split()


def test_everything_below_a_secret_key_is_removed() -> None:
    document = {
        "api_key": ["S1"],
        "password": {"v": "S2", "n": 12345678},
        "settings": [
            {"name": "--x-password", "value": "S3"},
            {"name": "--max-num-seqs", "value": "4"},
        ],
        "pairs": [["token", "S4"], ["max_tokens", "5"]],
        "text": json.dumps({"inner": {"api_key": "S5"}}),
        "secret_int": 123456,
        "max_tokens": 5,
        "api_key_set": None,
        "kind": "Secret",
        "data": {"any": "S6"},
    }
    redacted = redact_document(document)
    assert redacted == {
        "api_key": REMOVED,
        "password": REMOVED,
        "settings": [
            {"name": "--x-password", "value": REMOVED},
            {"name": "--max-num-seqs", "value": "4"},
        ],
        "pairs": [["token", REMOVED], ["max_tokens", "5"]],
        "text": f'{{"inner": {{"api_key": "{REMOVED}"}}}}',
        "secret_int": REMOVED,
        "max_tokens": 5,
        "api_key_set": None,
        "kind": "Secret",
        "data": REMOVED,
    }


@pytest.mark.parametrize(
    "unit", ["a", ".", "password", "-", "x@", "Aa1/", "token=", "password=[", "'", "eyJabcd."]
)
def test_a_long_word_is_redacted_in_under_a_second(unit: str) -> None:
    word = (unit * 30_000)[:30_000]
    begin = time.process_time()
    redacted = redact_text(f"INFO {word}\nHF_TOKEN=S3cret\n")
    assert time.process_time() - begin < 1
    assert "S3cret" not in redacted
    assert len(redacted) < LONGEST_WORD + 100


@pytest.mark.parametrize(
    "unit", ["a", "password=[\n", "://u:", "INFO key token 1 of prompt tokens: 12\n"]
)
def test_a_mebibyte_takes_seconds(unit: str) -> None:
    text = (unit * (1 << 20))[: 1 << 20]
    begin = time.process_time()
    redact_text(text)
    assert time.process_time() - begin < 15


def test_no_form_of_a_setting_lets_its_value_through(secret: str = "s3cr3tW0rdZZ9xQ41k") -> None:
    # some 25,000 of 300,000
    texts = drawn_settings(random.Random(35), 12, secret)
    assert len(texts) > 3_000
    assert [text for text in texts if secret in redact_text(text)] == []


_WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
_SECRET = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP0123456789", min_size=18, max_size=40)


# a later word of a value stays where all of its parts are terms of the list
_TERMS = frozenset(
    (TOP / "gaudi_launch/core/base/kept_words.txt").read_text(encoding="utf-8").split()
)


def _is_no_term(secret: str) -> bool:
    parts = re.findall("[A-Z]?[a-z]+|[A-Z]+|[0-9]+", secret)
    return not _TERMS.issuperset(part.lower() for part in parts)


@settings(max_examples=300, deadline=None)
@given(form=st.sampled_from(NAMED), before=_WORDS, after=_WORDS, secret=_SECRET.filter(_is_no_term))
def test_no_surrounding_text_lets_a_secret_through(
    form: str, before: str, after: str, secret: str
) -> None:
    assume(secret not in before + after)
    text = f"{before}\n{_with(form, secret)}\n{after}"
    assert secret not in redact_text(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_redacted_without_an_error(text: str) -> None:
    redact_text(text)


def test_what_remains_of_each_form_is_the_rest_of_it() -> None:
    """Each form without the lines around it, once with each secret where they differ."""
    shown = ""
    for form in NAMED:
        remains = [redact_text(_with(form, secret)) for secret in SECRETS]
        for text in dict.fromkeys(remains):
            shown += text.removeprefix("INFO start\n").removesuffix("INFO end\n")
    assert [secret for secret in SECRETS if secret in shown] == []
    golden("redacted-forms.txt", shown)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        # the rest of a line, of a list and of an object stays
        ('export HF_TOKEN=a"b c', 'export HF_TOKEN=[removed]"[removed]'),
        ("login password=s3cret\\ x", "login password=[removed]\\ [removed]"),
        ("login password=a\\b next", "login password=[removed]\\[removed] next"),
        ("passphrase s3cret next", "passphrase [removed] next"),
        ('password="s3cret\nnext "line"', 'password="[removed]\n[removed] "line"'),
        ("\"Cookie: a=b\" 'next'", "\"Cookie: [removed]\" 'next'"),
        ("[( 'Cookie', 'S3cret')]", "[( 'Cookie', '[removed]')]"),
        ("X-Secret: a\r\nnext", "X-Secret: [removed]\r\nnext"),
        ("Cookie: a=b; c\\r\\nnext", "Cookie: [removed]\\[removed]\\[removed]"),
        ("<token>a b</token>", "<token>[removed]</token>"),
        ("<token>a b", "<token>[removed]"),
        ("api_key: {a: [1, 2]} next", "api_key: {[removed]: [[removed]]} next"),
        ("api_key: [1, 2 next\nnext", "api_key: [[removed] next\n[removed]"),
        ("--token --port 1", "--token --port 1"),
        ('api_key="""a "b" """ next', 'api_key="""[removed]""" next'),
        ("a_token abcdef0123456789 next", "a_token [removed] next"),
        ("a_token /models/0123456789abc next", "a_token /models/0123456789abc next"),
        ("a_token short1 next", "a_token short1 next"),
        # a scheme of an address, and a signature without "="
        ("token://host", "token://host"),
        ("signature: 0123456789abcdef0123", "signature: 0123456789abcdef0123"),
        ("signature=0123456789abcdef0123 next", "signature=[removed] next"),
        ("signature=None next", "signature=None next"),
        # authorisation by its scheme
        ("Bearer abcdef", "Bearer [removed]"),
        ("Basic dXNlcjpwdw==", "Basic [removed]"),
        ("basic settings", "basic settings"),
        ("bearer tokens", "bearer tokens"),
        # addresses
        ("redis://:s3cret@host:1", "redis://[removed]@host:1"),
        ("http://host:8000/a@b", "http://host:8000/a@b"),
        ("curl --user me:s3cret http://h", "curl --user me:[removed] http://h"),
        ("docker run -u 1000:1000 x", "docker run -u 1000:1000 x"),
        ("sshpass -p s3cret ssh h", "sshpass [removed] ssh [removed]"),
        ("https://h/?key=0123456&x=1", "https://h/?key=[removed]&x=1"),
        # blocks of keys
        ("a\n-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\nb", "a\n[removed]\nb"),
        ("a b\nMIIx\nMIIy\n-----END PRIVATE KEY-----\nc", "a b\n[removed]\nc"),
        # lines below a key of YAML
        (
            "a:\n  password: |\n    x\n    y\n  b: 1",
            "a:\n  password: |\n    [removed]\n    [removed]\n  b: 1",
        ),
        ("passwords:\n- x\n- y\nb: 1", "passwords:\n- [removed]\n- [removed]\nb: 1"),
        ("password:\nb: 1", "password:\nb: 1"),
    ],
)
def test_nothing_but_the_secret_is_removed(text: str, redacted: str) -> None:
    assert redact_text(text) == redacted


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "password",
            "password passphrase MY_PASSWD client_secret credentials privateKey accesskey api-key"
            " signing_key encryption_key AccountKey shared_key subscription_key master_key authKey"
            " license_key key_data ssh_key hmac_key session_key requirepass sshpass MYSQL_PWD"
            " admin-key fernet_key --ssl-keyfile-password apiKey 密码 令牌",
        ),
        (
            "token",
            "token HF_TOKEN access_tokens hubTokens token_value csrf_token_data token_string"
            " tokenProd token_write jwt bearer hf_token_x auth masterauth redis_auth DB_PASS pass"
            " my_pass smtp_pass session_id tokens HUGGING_FACE_HUB_TOKEN",
        ),
        ("header", "Authorization Cookie set-cookie cookies"),
        (
            "",
            "tokenizer max_tokens eos_token eos_token_id token_ids id_tokens num_token_ids"
            " hf_token_length password_file api_key_name secret_ref token_url passes key_cache"
            " prompt_token_value token_count secret_policy author key primary_key session_dir"
            " ssl_keyfile max_num_batched_tokens maxTokens api_key_file secretKeyRef kv_dtype",
        ),
    ],
)
def test_each_name_has_the_kind_of_its_secret(kind: str, names: str) -> None:
    found = {name: secret_kind(name) for name in names.split()}
    assert found == dict.fromkeys(names.split(), kind)
    # a field of usage counts
    shown = {name: is_secret_name(name) for name in found if name != "tokens"}
    assert set(shown.values()) == {kind != ""}
    assert not is_secret_name("tokens")


@pytest.mark.parametrize("field", ["name", "key", "option", "flag", "header", "variable"])
@pytest.mark.parametrize("value", ["value", "values", "val", "content", "default"])
def test_a_value_beside_a_secrets_name_is_removed(field: str, value: str) -> None:
    document = {field: "HF_TOKEN", value: "S1", "note": "kept"}
    assert redact_document(document) == {field: "HF_TOKEN", value: REMOVED, "note": "kept"}
    assert redact_document({field: "other", value: "kept"}) == {field: "other", value: "kept"}


def test_the_data_of_a_kubernetes_secret_is_removed_in_both_fields() -> None:
    parts = {"data": {"a": "S1"}, "stringData": {"b": "S2"}, "type": "Opaque"}
    assert redact_document({"kind": "Secret", **parts}) == {
        "kind": "Secret",
        "data": REMOVED,
        "stringData": REMOVED,
        "type": "Opaque",
    }
    assert redact_document({"kind": "ConfigMap", **parts}) == {"kind": "ConfigMap", **parts}


def test_values_that_are_no_secret_stay_below_a_secrets_name() -> None:
    document = {
        "api_key": True,
        "token": "12",
        "auth": "bearer",
        "password": "none",
        "secrets": [],
        "signature": "abc",
        "pwd": "/root",
        "other": None,
        "tuple": ("--api-key", "S1", 3, "--port", 3),
    }
    assert redact_document(document) == {
        **document,
        "tuple": ["--api-key", REMOVED, REMOVED, "--port", 3],
    }
    assert redact_document("S1", "api_key") == REMOVED
    assert redact_document(("a",), "password") == REMOVED
    assert redact_document({"HF_TOKEN=S1": 1}) == {f"HF_TOKEN={REMOVED}": 1}


def test_a_long_word_is_cut_after_4096_characters() -> None:
    assert redact_text("x" * 4096) == "x" * 4096
    assert redact_text("a " + "x" * 4100 + " b") == "a " + "x" * 4096 + "[4 characters cut] b"
