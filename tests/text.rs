//! Text in and out on small vocabularies: the cases D10 to D19, and properties that hold for every text and every sequence
//! of ids.

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

use vocabulary::{all_bytes, all_kinds, byte_level, chat, sentencepiece, set, spell, text, unigram_metadata};

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
    // An answer is a text of its own; what continues a prompt is not.
    let mut after = tokenizer.stream_after(&ids[1..2]);
    assert_eq!(after.push(&tokenizer, ids[2]), " x");
    let mut first = tokenizer.stream_after(&[1]);
    assert_eq!(first.push(&tokenizer, ids[2]), "x");
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
