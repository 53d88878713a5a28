//! Text in and out on small vocabularies: the cases D10 to D19, properties that hold for every text and every sequence of
//! ids, and files that make no sense.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::mpsc;
use std::time::Duration;

use hadal::Error;
use hadal::file::metadata::{Metadata, Value};
use hadal::template::{Context, Message, Template};
use hadal::tokenizer::{Special, Tokenizer};
use proptest::prelude::*;

#[path = "support/vocabulary.rs"]
mod vocabulary;

use vocabulary::{all_bytes, byte_level, floats, metadata, numbers, sentencepiece, spell, text, texts};

/// All bytes, pieces of characters, two words, and the tokens of a chat.
fn chat_metadata() -> Metadata {
    let mut tokens = all_bytes();
    for piece in
        [&[0xF0, 0x9F][..], &[0x98, 0x80], &[0xE6, 0xAD], b"he", b" the", "é".as_bytes(), &[0xC3, 0x28]]
    {
        tokens.push((spell(piece), 1));
    }
    for (token, kind) in [("<|im_start|>", 3), ("<|im_end|>", 3), ("</think>", 4), ("[PAD]", 5), ("<s>", 3)] {
        tokens.push((token.to_owned(), kind));
    }
    byte_level(&tokens, &["h e", "Ġ t", "Ġt he", "æ Ń", "ð Ł", "Ã ©"])
}

fn chat() -> Tokenizer {
    Tokenizer::from_metadata(&chat_metadata()).unwrap()
}

fn unigram_metadata() -> Metadata {
    let tokens = ["<pad>", "</s>", "<unk>", "▁", "▁a", "a", "b", "ab", "▁ab", "é", "x"];
    let scores = [0.0, 0.0, 0.0, -2.0, -3.0, -4.0, -4.0, -5.0, -5.5, -6.0, -6.0];
    metadata([
        ("model", text("t5")),
        ("tokens", texts(&tokens)),
        ("scores", floats(&scores)),
        ("token_type", numbers(&[3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1])),
        ("eos_token_id", Value::Unsigned(1)),
    ])
}

/// One of each kind.
fn all_kinds() -> [Tokenizer; 3] {
    let spm =
        sentencepiece(&[("▁", -1.0), ("a", -2.0), ("b", -2.0), ("▁a", -3.0), ("ab", -4.0), ("é", -5.0)]);
    [chat_metadata(), spm, unigram_metadata()].map(|metadata| Tokenizer::from_metadata(&metadata).unwrap())
}

fn set(mut metadata: Metadata, key: &str, value: Value) -> Metadata {
    metadata.0.insert(format!("tokenizer.ggml.{key}"), value);
    metadata
}

/// Ids streamed one by one: what each gave, then the end.
fn streamed(tokenizer: &Tokenizer, ids: &[u32], show_control: bool) -> Vec<String> {
    let mut stream = tokenizer.stream_with(show_control);
    let mut pieces: Vec<String> = ids.iter().map(|&id| stream.push(tokenizer, id)).collect();
    pieces.push(stream.finish());
    pieces
}

#[test]
fn d10_bytes_that_are_no_text() {
    let tokens = [("!".to_owned(), 1), (spell(&[0xE6, 0xAD]), 1), (spell(&[0xAA]), 1)];
    let tokenizer = Tokenizer::from_metadata(&byte_level(&tokens, &["æ Ń"])).unwrap();
    assert_eq!(tokenizer.encode("歪", Special::Text).unwrap(), [1, 2]);
    assert_eq!(tokenizer.encode_bytes(&[0xE6, 0xAD, 0xAA]).unwrap(), [1, 2]);
    assert_eq!(tokenizer.encode_bytes(&[0xE6, 0xAD]).unwrap(), [1]);
    assert_eq!(tokenizer.encode_bytes(&[0xE6, 0xAD, b'!', 0xAA]).unwrap(), [1, 0, 2]);
    assert!(matches!(tokenizer.encode_bytes(&[0xE6]), Err(Error::Tokenizer(_))));
    assert!(matches!(tokenizer.encode("x", Special::Text), Err(Error::Tokenizer(_))));
    // Bytes have tokens of their own in SentencePiece vocabularies, after <unk>, <s> and </s>.
    let [_, spm, unigram] = all_kinds();
    assert_eq!(spm.encode_bytes(&[0xFF, b'a']).unwrap(), [3 + 0xFF, spm.id("a").unwrap()]);
    assert!(matches!(unigram.encode_bytes(&[0xFF]), Err(Error::Tokenizer(_))));
}

#[test]
fn d11_a_character_is_streamed_as_a_whole() {
    let tokenizer = chat();
    let id = |bytes: &[u8]| tokenizer.id(&spell(bytes)).unwrap();
    let ids = [id(&[0xF0, 0x9F]), id(&[0x98, 0x80]), id(b"!")];
    assert_eq!(streamed(&tokenizer, &ids, false), ["", "😀", "!", ""]);
    assert_eq!(streamed(&tokenizer, &ids[..1], false), ["", "\u{FFFD}"]);
    assert_eq!(tokenizer.decode(&ids[..1]), "\u{FFFD}");
}

#[test]
fn d12_a_byte_that_leads_nowhere() {
    let tokenizer = chat();
    let ids = [0xC3, u32::from(b' '), u32::from(b'b')];
    assert_eq!(streamed(&tokenizer, &ids, false), ["", "\u{FFFD} ", "b", ""]);
}

#[test]
fn d13_one_space_is_stripped() {
    let metadata = sentencepiece(&[("▁", -1.0), ("▁leading", -2.0), ("▁x", -3.0)]);
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    let ids = ["▁", "▁leading", "▁x"].map(|token| tokenizer.id(token).unwrap());
    assert_eq!(streamed(&tokenizer, &ids, false), ["", " leading", " x", ""]);
    assert_eq!(tokenizer.decode(&ids), " leading x");
    // A vocabulary that puts no space in front takes none away.
    let metadata = set(metadata, "add_space_prefix", Value::Bool(false));
    assert_eq!(Tokenizer::from_metadata(&metadata).unwrap().decode(&ids), "  leading x");
}

/// Runs `work` on a stack of one megabyte and gives up after a minute: with anything quadratic in it, a run of half a million
/// letters takes hours.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let worker = std::thread::Builder::new().stack_size(1 << 19).spawn(move || {
        work();
        done.send(()).unwrap();
    });
    let worker = worker.unwrap();
    if wait.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("not done after a minute");
    }
    worker.join().unwrap();
}

#[test]
fn d14_long_runs() {
    const RUNS: [(&str, char, usize); 8] = [
        ("qwen2", 'A', 43_000),
        ("deepseek-v3", 'Z', 131_072),
        ("deepseek-v3", 'Z', 1 << 19),
        ("qwen2", ' ', 1 << 19),
        ("qwen2", '\n', 1 << 19),
        ("gpt-4o", 'Z', 1 << 19),
        ("default", '<', 1 << 19),
        ("deepseek-v3", '\0', 1 << 19),
    ];
    on_small_stack(|| {
        for (pre, letter, count) in RUNS {
            let mut tokens = all_bytes();
            let one = spell(letter.to_string().as_bytes());
            tokens.extend([
                (one.repeat(2), 1),
                (one.repeat(4), 1),
                ("<|im_end|>".to_owned(), 3),
                ("  ".to_owned(), 4),
            ]);
            let merges = [format!("{one} {one}"), format!("{0} {0}", one.repeat(2))];
            let metadata = byte_level(&tokens, &merges.each_ref().map(String::as_str));
            let tokenizer = Tokenizer::from_metadata(&set(metadata, "pre", text(pre))).unwrap();
            let run = letter.to_string().repeat(count);
            let ids = tokenizer.encode_rendered(&tokenizer.shield(&run)).unwrap();
            assert!(ids.len() <= count / 2, "{pre} {letter:?}");
            assert!(tokenizer.decode(&ids) == run, "{pre} {letter:?} does not come back");
        }
        let spm = sentencepiece(&[("Z", -1.0), ("ZZ", -2.0), ("ZZZZ", -3.0), ("▁", -4.0)]);
        let spm = Tokenizer::from_metadata(&spm).unwrap();
        let run = "Z".repeat(1 << 19);
        let ids = spm.encode(&run, Special::Text).unwrap();
        assert_eq!(ids.len(), (1 << 17) + 1);
        assert!(spm.decode(&ids) == run);
        let unigram = Tokenizer::from_metadata(&unigram_metadata()).unwrap();
        let run = "ab".repeat(1 << 18);
        assert!(unigram.decode(&unigram.encode(&run, Special::Text).unwrap()) == run);
    });
}

#[test]
fn d15_one_bos() {
    let tokens = [("▁", -1.0), ("H", -2.0), ("i", -2.0), ("Hi", -3.0), ("▁Hi", -4.0)];
    let metadata = set(sentencepiece(&tokens), "add_bos_token", Value::Bool(true));
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    let template = Template::new("{{ bos_token }}{{ messages[0].content }}").unwrap();
    let context = Context { bos_token: "<s>".into(), ..Context::default() };
    let rendered = template.render(&[Message::user("Hi")], &context).unwrap();
    let word = tokenizer.id("▁Hi").unwrap();
    assert_eq!(tokenizer.encode_rendered(&rendered).unwrap(), [1, word]);
    assert_eq!(tokenizer.encode_rendered("Hi").unwrap(), [1, word]);
    assert_eq!(tokenizer.encode_prompt("Hi", Special::Parse).unwrap(), [1, word]);
    assert_eq!(tokenizer.encode_prompt("<s>Hi", Special::Parse).unwrap(), [1, word]);
    assert_eq!(tokenizer.encode_prompt("", Special::Parse).unwrap(), [1]);
    assert_eq!(tokenizer.encode("Hi", Special::Parse).unwrap(), [word]);
    let spelled = tokenizer.encode_prompt("<s>", Special::Text).unwrap();
    assert_eq!((spelled[0], spelled.iter().filter(|&&id| id == 1).count()), (1, 1));
    assert_eq!(tokenizer.decode(&spelled), "<s>");
    let without = set(metadata, "add_bos_token", Value::Bool(false));
    let without = Tokenizer::from_metadata(&without).unwrap();
    assert_eq!(without.encode_prompt("Hi", Special::Parse).unwrap(), [word]);
    assert_eq!(without.encode_rendered("<s>Hi").unwrap(), [1, word]);
    assert!(tokenizer.adds_bos() && !without.adds_bos());
}

const ALTERNATE: &str = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
    {{ raise_exception('Roles must alternate: \"user\", <assistant>') }}{% endif %}{{ m.content }}{% endfor %}";

#[test]
fn d16_to_d19_templates() {
    let trim = "{% for m in messages %}\n    {% if m.role == 'user' %}\n<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n    \
        {% else %}\n<|sys|>{{ m.content }}\n    {% endif %}\n{% endfor %}\n{% if add_generation_prompt %}\n<|im_start|>assistant\n\
        {% endif %}";
    let t = serde_json::json!({"a": "<b>&'é", "n": null, "f": 1.0, "l": [1, 2]});
    let context = Context {
        add_generation_prompt: true,
        now: Some(jiff::civil::date(2025, 2, 3).at(0, 0, 0, 0)),
        extra: [("t".to_owned(), t)].into_iter().collect(),
        ..Context::default()
    };
    let line = r#"{"a": "<b>&'é", "n": null, "f": 1.0, "l": [1, 2]}"#;
    let lines = "{\n    \"a\": \"<b>&'é\",\n    \"n\": null,\n    \"f\": 1.0,\n    \"l\": [\n        1,\n        2\n    ]\n}";
    let date = r#"{%- set today = strftime_now("%Y-%m-%d") %}{{ strftime_now('%d %b %Y') }} {{ today }}"#;
    let messages = [Message::system("S"), Message::user("Hi")];
    for (source, expected) in [
        (trim, "<|sys|>S\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
        ("{{ t|tojson }}", line),
        ("{{ t|tojson(ensure_ascii=False) }}", line),
        ("{{ t|tojson(indent=4) }}", lines),
        (date, "03 Feb 2025 2025-02-03"),
    ] {
        assert_eq!(Template::new(source).unwrap().render(&messages, &context).unwrap(), expected, "{source}");
    }
    let refused = Template::new(ALTERNATE).unwrap().render(&messages, &context);
    assert!(
        matches!(refused, Err(Error::Template(text)) if text == "Roles must alternate: \"user\", <assistant>")
    );
}

#[test]
fn templates_that_never_end_or_break_are_errors() {
    let cases = [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "line 1"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        (
            "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "fuel",
        ),
        ("{{ 'x' * 99999999999 }}", "fuel"),
        (
            "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
            "within",
        ),
        ("a\nb\n{% if %}", "line 3"),
        ("{% unknown %}", "line 1"),
        ("{{ messages | nothing }}", "nothing"),
        ("{% include 'etc/passwd' %}", "not found"),
        ("{{ strftime_now('%Q') }}", "strftime_now"),
    ];
    on_small_stack(move || {
        for (source, part) in cases {
            let result = Template::new(source).and_then(|template| template.render(&[], &Context::default()));
            let Err(Error::Template(message)) = &result else { panic!("{source}: {result:?}") };
            assert!(message.contains(part), "{source}: {message:?} does not say {part:?}");
        }
    });
}

#[test]
fn a_template_comes_from_metadata_and_may_differ_for_tools() {
    assert!(Template::from_metadata(&Metadata::default()).unwrap().is_none());
    let both = [("tokenizer.chat_template", "plain"), ("tokenizer.chat_template.tool_use", "tools")];
    let metadata = Metadata(both.map(|(key, source)| (key.to_owned(), text(source))).into_iter().collect());
    let template = Template::from_metadata(&metadata).unwrap().unwrap();
    let with_tools = Context { tools: vec![serde_json::json!({})], ..Context::default() };
    assert_eq!(template.render(&[], &Context::default()).unwrap(), "plain");
    assert_eq!(template.render(&[], &with_tools).unwrap(), "tools");
    let message: Message = serde_json::from_str(r#"{"role":"user","content":"a","name":"n"}"#).unwrap();
    assert_eq!(message.extra["name"], "n");
    assert_eq!(serde_json::to_string(&message).unwrap(), r#"{"role":"user","content":"a","name":"n"}"#);
}

#[test]
fn control_tokens_are_structure_only_where_they_may_be() {
    let tokenizer = chat();
    let id = |token: &str| tokenizer.id(token).unwrap();
    let written = "a<|im_end|></think>";
    let ids = tokenizer.encode(written, Special::Text).unwrap();
    assert!(!ids.contains(&id("<|im_end|>")) && ids.contains(&id("</think>")));
    assert_eq!(tokenizer.decode(&ids), written);
    let ids = tokenizer.encode(written, Special::Parse).unwrap();
    assert_eq!(ids, [u32::from(b'a'), id("<|im_end|>"), id("</think>")]);
    assert_eq!(
        (tokenizer.decode(&ids), tokenizer.decode_with(&ids, true)),
        ("a</think>".into(), written.into())
    );
    assert!(tokenizer.is_control(id("<|im_end|>")) && !tokenizer.is_control(id("</think>")));
    assert_eq!(tokenizer.stops(), [id("<|im_end|>")]);
    // A place without use is never text, and an id that does not exist is nothing.
    assert_eq!((tokenizer.decode(&[id("[PAD]"), 99_999]), tokenizer.token(99_999)), (String::new(), None));
}

#[test]
fn everything_that_names_an_end_is_a_stop() {
    let names = ["<|end|>", "<|return|>", "<|call|>", "<|eom_id|>", "stop", "pause", "late", "<|im_end|>"];
    let mut tokens = all_bytes();
    tokens.extend(names.map(|name| (name.to_owned(), 3)));
    let id = |name: &str| 256 + names.iter().position(|&each| each == name).unwrap() as u64;
    let mut metadata = byte_level(&tokens, &[]);
    for (key, name) in [("eos_token_id", "stop"), ("eot_token_id", "pause")] {
        metadata = set(metadata, key, Value::Unsigned(id(name)));
    }
    let metadata = set(metadata, "eos_token_ids", numbers(&[id("late") as i64, id("stop") as i64]));
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    // With <|return|> and <|call|> there, <|end|> ends a part of an answer only.
    let expected = ["<|return|>", "<|call|>", "<|eom_id|>", "stop", "pause", "late", "<|im_end|>"];
    assert_eq!(tokenizer.stops(), expected.map(|name| id(name) as u32));
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (None, Some(id("stop") as u32)));
}

#[test]
fn metadata_that_makes_no_sense_is_an_error() {
    let good = chat_metadata;
    let spm = || sentencepiece(&[("a", 0.0)]);
    let without = |mut metadata: Metadata, key: &str| {
        metadata.0.shift_remove(&format!("tokenizer.ggml.{key}"));
        metadata
    };
    let cases = [
        ("no model", without(good(), "model"), "tokenizer.ggml.model is missing"),
        ("bert", set(good(), "model", text("bert")), "tokenizer \"bert\" is not supported"),
        ("rwkv", set(good(), "model", text("rwkv")), "tokenizer \"rwkv\" is not supported"),
        ("pre", set(good(), "pre", text("qwen9")), "pre-tokenizer \"qwen9\" is not supported"),
        ("no tokens", without(good(), "tokens"), "tokenizer.ggml.tokens is missing"),
        ("empty", set(without(good(), "token_type"), "tokens", texts::<&str>(&[])), "vocabulary is empty"),
        ("tokens are numbers", set(good(), "tokens", numbers(&[1])), "expected an array of texts"),
        ("few types", set(good(), "token_type", numbers(&[1, 1])), "2 types for"),
        ("odd type", set(good(), "token_type", numbers(&vec![9; 268])), "no type 9"),
        ("no merges", without(good(), "merges"), "tokenizer.ggml.merges is missing"),
        ("merge of one", set(good(), "merges", texts(&["h e", "he"])), "entry 1, \"he\""),
        ("merge of nothing", set(good(), "merges", texts(&["h "])), "entry 0, \"h \""),
        ("bos", set(good(), "bos_token_id", Value::Unsigned(9999)), "bos_token_id: token 9999 is outside"),
        (
            "eos",
            set(good(), "eos_token_id", Value::Unsigned(1 << 40)),
            "eos_token_id: token 1099511627776 is outside",
        ),
        ("eos list", set(good(), "eos_token_ids", numbers(&[-1])), "eos_token_ids: -1 is no token"),
        (
            "unknown",
            set(good(), "unknown_token_id", Value::Unsigned(9999)),
            "unknown_token_id: token 9999 is outside",
        ),
        ("no scores", without(spm(), "scores"), "tokenizer.ggml.scores is missing"),
        ("few scores", set(spm(), "scores", floats(&[0.0])), "1 scores for 260 tokens"),
        ("nan score", set(spm(), "scores", floats(&[f64::NAN; 260])), "score of token 0 is not a number"),
        ("infinite score", set(unigram_metadata(), "scores", floats(&[f64::INFINITY; 11])), "not finite"),
        ("charsmap", set(unigram_metadata(), "precompiled_charsmap", numbers(&[9, 0, 0, 0])), "charsmap"),
    ];
    for (name, metadata, part) in cases {
        let result = Tokenizer::from_metadata(&metadata);
        let message = result.map(|_| "no error".to_owned()).unwrap_or_else(|error| error.to_string());
        assert!(message.contains(part), "{name}: {message:?} does not say {part:?}");
    }
    assert!(
        Tokenizer::from_metadata(&without(good(), "pre")).is_ok(),
        "a missing pre-tokenizer is only a warning"
    );
}

fn any_ids() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0u32..300, 0..24)
}

fn any_text() -> impl Strategy<Value = String> {
    let parts = vec![
        "<|im_end|>",
        "<|im_start|>",
        "<|im_",
        "end|>",
        "<",
        "|>",
        "<s>",
        "</s>",
        "</think>",
        "he",
        " the",
        "  ",
        "\n",
        "\t",
        "é",
        "e\u{301}",
        "歪",
        "😀",
        "a",
        "b",
        "ab",
        "▁",
        "<0x41>",
        "123",
        "'s",
        "\u{FDD0}",
        "\u{FDD1}",
        "\u{FDD3}",
        "\0",
        "<unk>",
    ];
    prop::collection::vec(prop::sample::select(parts), 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn streams_give_what_decoding_gives(ids in any_ids(), show_control in any::<bool>()) {
        for tokenizer in all_kinds() {
            let pieces = streamed(&tokenizer, &ids, show_control);
            prop_assert_eq!(pieces.concat(), tokenizer.decode_with(&ids, show_control));
            // Only the end may cut a character: every U+FFFD before it stands for bytes that can't become one.
            let end = pieces.last().map_or("", String::as_str);
            prop_assert!(["", "\u{FFFD}"].contains(&end), "{:?}", end);
        }
    }

    #[test]
    fn what_a_user_writes_is_text(text in any_text()) {
        let [bytes, spm, _] = all_kinds();
        for tokenizer in [bytes, spm] {
            let ids = tokenizer.encode(&text, Special::Text).unwrap();
            prop_assert!(!ids.iter().any(|&id| tokenizer.is_control(id)), "{:?}", ids);
            // `▁` is a space to SentencePiece.
            let back = tokenizer.decode(&ids);
            prop_assert!(back == text || back == text.replace('▁', " "), "{:?} became {:?}", text, back);
        }
    }

    #[test]
    fn what_a_user_writes_is_text_in_a_template_too(text in any_text()) {
        let tokenizer = chat();
        let template = Template::new(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
        ).unwrap();
        let message = Message::user(tokenizer.shield(&text));
        let rendered = template.render(&[message.clone(), message], &Context::default()).unwrap();
        let id = |token: &str| tokenizer.id(token).unwrap();
        let turn = tokenizer.encode(&format!("user\n{text}"), Special::Text).unwrap();
        let end = tokenizer.encode("\n", Special::Text).unwrap();
        let once = [vec![id("<|im_start|>")], turn, vec![id("<|im_end|>")], end].concat();
        let ids = tokenizer.encode_rendered(&rendered).unwrap();
        prop_assert_eq!(&ids, &[once.clone(), once].concat());
        prop_assert_eq!(tokenizer.decode(&ids), format!("user\n{text}\n").repeat(2));
    }

    #[test]
    fn bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..16)) {
        let tokenizer = chat();
        let ids = tokenizer.encode_bytes(&bytes).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids), String::from_utf8_lossy(&bytes));
    }
}
