"""Answer tool calls as simulated cards do; run by the CPU engine's interpreter.

`simulated_tools.py TOKENIZER`: tools (functions), one JSON object per line of stdin. For each
one JSON object is printed: the text of an answer by tool choice, and the reason of a refusal.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import xgrammar as xgr
from gaudi_simulated_text import AnswerText
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam
from vllm.tool_parsers.structural_tag_registry import get_model_structural_tag
from vllm.tool_parsers.tool_strict_level import ToolStrictLevel

CHOICES = ("required", "auto")
_MOST = 4000


def answer(compiled: Any, text: AnswerText, tokenizer: Any, seed: int) -> str:
    """Return the text that simulated cards write under a grammar, until its end."""
    matcher = xgr.GrammarMatcher(compiled)
    mask = xgr.allocate_token_bitmask(1, len(tokenizer))
    plan, tokens = text.answer([seed], "", tokenizer.eos_token_id), list[int]()
    while not matcher.is_terminated() and len(tokens) < _MOST:
        matcher.fill_next_token_bitmask(mask)
        tokens.append(text.allowed(plan, mask[0].tolist(), len(tokens)))
        assert matcher.accept_token(tokens[-1])
    return str(tokenizer.decode([token for token in tokens if token != tokenizer.eos_token_id]))


def main() -> None:
    """Answer every schema of stdin."""
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    text = AnswerText(lambda said: tokenizer.encode(said, add_special_tokens=False), 0)
    compiler = xgr.GrammarCompiler(xgr.TokenizerInfo.from_huggingface(tokenizer))
    for seed, line in enumerate(sys.stdin):
        found: dict[str, str] = {}
        tool = ChatCompletionToolsParam(type="function", function=json.loads(line))
        try:
            for choice in CHOICES:
                tag = get_model_structural_tag(
                    model="hermes",
                    tools=[tool],
                    tool_choice=choice,
                    reasoning=False,
                    strict_level=ToolStrictLevel.PARAMETER,
                )
                found[choice] = answer(compiler.compile_structural_tag(tag), text, tokenizer, seed)
        except RuntimeError as error:
            found["refused"] = str(error)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
