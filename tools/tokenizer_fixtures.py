"""Makes crates/engine/tests/fixtures/tokenizer/{byte_level,sentencepiece}.json.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    python tools/tokenizer_fixtures.py crates/engine/tests/fixtures/tokenizer

The ids come from Hugging Face's tokenizers, set up with each family's full pattern (look-ahead included), and from
Google's sentencepiece. The byte-level vocabulary is trained on the texts themselves without any pre-tokenizer, so that
merges reach across every place where a family has to split: a wrong split shows in the ids.
"""

import io
import json
import pathlib
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+" + SPACES
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+" + SPACES
QWEN35 = (
    CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+" + SPACES
)
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+" + SPACES
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(upper, lower, suffix):
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}[{upper}]*[{lower}]+{suffix}|{lead}[{upper}]+[{lower}]*{suffix}"


GPT4O = cased(UPPER, LOWER, f"{CONTRACTION}?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+" + SPACES
TEKKEN = cased(UPPER, LOWER, "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+" + SPACES
NOT_HAN = r"&&[^\p{Han}]"
KIMI = (
    r"[\p{Han}]+|"
    + cased(UPPER + NOT_HAN, LOWER + NOT_HAN, f"{CONTRACTION}?")
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    + SPACES
)
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]" + SPACES
)
DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+" + SPACES
)
KANA_HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK_LETTERS = (
    "\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373"
    "\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F"
    "\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D"
    "\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4"
    "\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D"
    "\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A"
    "\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2"
    "\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943]+"
)
DEEPSEEK_LLM = [
    r"[\r\n]",
    DEEPSEEK_LETTERS,
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    "[\u0800-\u9fa5\uac00-\ud7ff]+",
    r"\p{N}+",
]
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]

# name: (patterns, NFC, whole words)
FAMILIES = {
    "gpt-2": ([GPT2], False, False),
    "olmo": ([GPT2], True, False),
    "qwen2": ([QWEN2], True, False),
    "qwen35": ([QWEN35], True, False),
    "hunyuan": ([QWEN2], False, False),
    "llama-bpe": ([LLAMA3], False, True),
    "chatglm-bpe": ([LLAMA3], False, False),
    "gpt-4o": ([GPT4O], False, False),
    "tekken": ([TEKKEN], False, True),
    "kimi-k2": ([KIMI], False, False),
    "bailingmoe": ([BAILING], False, False),
    "deepseek-v3": ([r"\p{N}{1,3}", KANA_HAN, DEEPSEEK_V3], False, False),
    "deepseek-llm": (DEEPSEEK_LLM, False, False),
    "refact": ([r"\p{N}", GPT2], False, False),
    "default": (DEFAULT, False, False),
}

TEXTS = [
    "Hello, world! It's 9 o'clock; we're late, they'll wait. I'd say 'twas fine.",
    "SHE'LL GO, DON'T! IT\u2019S 'S 'sS 'Tis 'reVerse 'll'LL''d 'm''M",
    "don'\u017f 'Re 'vE \u017f's K\u212a's 'D'd",
    "0 1 12 123 1234 12345 123456 1,234,567.89 1e10 0x1F \u0661\u0662\u0663\u0664 \u216b\u216c \u00bd\u00bc \u00b2\u00b3 \u2460\u2461",
    "v1.2.3-rc4 192.168.0.1:8080 2024-01-31T23:59:60Z 3\u00d74=12 50% $9.99 \u20ac5",
    "a  b   c    d     e \n f  \n\n  g\t\th\t i \t j\n\n\n\nk   ",
    "   leading, trailing   ",
    "\n\nleading newlines\r\n\r\nCRLF\r\n  indented\r\rlone returns\n \n \n x",
    "tab\tthen\t\ttabs\t\t\tend\t\t\t\n\t\tif x:\n\t\t\treturn\n",
    " \u00a0 nbsp\u00a0\u00a0here \u3000ideographic\u3000\u3000 \u2003em\u2003 \u1680 \u205f",
    "next\u0085line \u2028 separator\u2029 paragraph \u000b vertical \u000c feed \u001c fs",
    "zero\u200bwidth \u200d joiner\u200c \ufeffBOM \u00ad soft\u00adhyphen \u2060",
    "control \u0000\u0001\u0007\u001b[31mred\u001b[0m \u007f \u0080 \u009f end",
    "fn main() {\n    let x: Vec<u32> = vec![1, 2, 3];\n    println!(\"{:?}\", x); // ok\n}\n",
    "def f(x):\n\treturn x**2 if x >= 0 else -x  # comment\n\n\nclass A(B): pass\n",
    "<div class=\"a-b_c\" id='x'>&nbsp;</div><!-- ... --> <br/>\n//path/to//file/\n/* c */\n",
    "camelCase PascalCase snake_case SCREAMING_CASE kebab-case HTTPServer2XMLParser iOS McDonald \u01c5\u01c8 \u02b0\u02b1",
    "https://example.com/a/b?c=d&e=f#g user@host.org C:\\dir\\file.txt ~/.bashrc $HOME ${X}",
    "!!! ??? ... --- *** === ### @@@ ;;; (([[{{}}]])) \"'`\" !?.,;: \\n \\\\ |||",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002 \u4e2d\u6587 and English\u6df7\u5408 text 123\u4e2a\u3007\u3006",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3068\u30ab\u30bf\u30ab\u30ca\u30fc\u3001\u3072\u3089\u304c\u306a\u3002 \uff71\uff72\uff73 \uff21\uff22\uff23\uff11\uff12 \u3005\u9fa6\u3400\U00020000",
    "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8\uc785\ub2c8\ub2e4. \u1112\u1161\u11ab\u1100\u116e\u11a8 \u3131\u3134",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u1f20\u03c1\u03b1 \u0540\u0561\u0575 \u10e5\u10d0\u10e0",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627 \u05e9\u05b8\u05dc\u05d5\u05b9\u05dd \u06f1\u06f2\u06f3",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0926\u0947\u0935\u0928\u093e\u0917\u0930\u0940 \u0967\u0968\u0969 \u09ac\u09be\u0982\u09b2\u09be \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0ba4\u0bae\u0bbf\u0bb4\u0bcd",
    "cafe\u0301 na\u00efve e\u0301\u0323 e\u0323\u0301 o\u0308\u0304 \u0301alone x\u0301\u0302\u0303\u0304y \u212b \u2126 \ufb01 \u1e9b\u0323 a\u20dd 1\u0301 !\u0301",
    "\U0001f680\U0001f525 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea\U0001f1ef\U0001f1f5 1\ufe0f\u20e3 \u2764\ufe0f \U0001f3f4\u200d\u2620\ufe0f :-) \u263a",
    "\U0001d4d0\U0001d4d1\U0001d4d2 \U0001d7d8\U0001d7d9 \u2211\u222b\u2202 \u2264\u2265\u2260 \u00ac\u2227\u2228 x\u00b2+y\u00b2=z\u00b2 \u03b1\u2192\u03b2 \u211d\u2115",
    "\u201cquoted\u201d \u2018single\u2019 \u2014dash\u2014 \u2026 \u00abguillemets\u00bb \u300c\u62ec\u5f27\u300d \u3014\u3015 \u00a1hola! \u00bfqu\u00e9?",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- item\n  - sub\n\n> quote\n\n```rust\nlet a = 1;\n```\n***\n",
    "{\"key\": [1, 2.5, -3e-7, null, true], \"s\": \"a\\\"b\\u00e9\"}\n",
    "x",
    " ",
    "\n",
    "  ",
    " \n",
    "\n ",
    "a\n",
    "'",
    "''s",
    "\u0301",
    " \u0301\u0301a",
    "!/\n/x //\r\n/y ...///\n\n",
    "hello hello123 hello  hello",
]

# In the vocabulary, but no merges lead to them: only a family that takes whole words finds them.
WHOLE_WORDS = [" PascalCase", "234", " snake"]


def byte_level(directory):
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = spell
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1300, min_frequency=1, initial_alphabet=alphabet)
    trained.train_from_iterator([t for t in TEXTS for _ in range(2)], trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    for word in WHOLE_WORDS:
        spelled = spell.pre_tokenize_str(word)[0][0]
        assert spelled not in tokens, word
        tokens.append(spelled)
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(m) for m in model["merges"]]

    families = []
    for name, (patterns, nfc, whole_words) in FAMILIES.items():
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=whole_words))
        if nfc:
            tokenizer.normalizer = normalizers.NFC()
        splits = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in patterns]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, spell])
        families.append({"pre": name, "ids": [tokenizer.encode(text).ids for text in TEXTS]})

    write(directory / "byte_level.json", {
        "tokens": tokens,
        "merges": [" ".join(m) for m in merges],
        "texts": TEXTS,
        "families": families,
    })


def sentencepieces(directory):
    # Other scripts stay unknown to it: they are spelled in bytes, or are the unknown token.
    latin = [text for text in TEXTS if max(text) < "\u1000" and "\0" not in text]
    cases = []
    for byte_fallback, prefix in [(True, True), (True, False), (False, True)]:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(latin * 4), model_writer=model, model_type="bpe", vocab_size=600,
            byte_fallback=byte_fallback, add_dummy_prefix=prefix, normalization_rule_name="identity",
            remove_extra_whitespaces=False, character_coverage=1.0, allow_whitespace_only_pieces=True,
            split_digits=True, minloglevel=2, hard_vocab_limit=False, num_threads=1,
        )
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
        cases.append({
            "add_space_prefix": prefix,
            "unknown": processor.unk_id(), "bos": processor.bos_id(), "eos": processor.eos_id(),
            "tokens": [p.piece for p in proto.pieces],
            "scores": [p.score for p in proto.pieces],
            "token_types": [p.type for p in proto.pieces],
            "texts": TEXTS,
            "ids": [processor.encode(text) for text in TEXTS],
            "decoded": [processor.decode(processor.encode(text)) for text in TEXTS],
        })
    write(directory / "sentencepiece.json", cases)


def write(path, value):
    def flat(v):
        return json.dumps(v, ensure_ascii=True, separators=(",", ":"))

    def rows(v):  # one line for each text or family, so that a change shows as a change
        return "[\n" + ",\n".join(flat(x) for x in v) + "\n]"

    if isinstance(value, dict):
        parts = (f'"{k}":{rows(v) if k in ("texts", "families") else flat(v)}' for k, v in value.items())
        path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    else:
        path.write_text(rows(value) + "\n")


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    byte_level(out)
    sentencepieces(out)
