//! The engine on the embedded model: limits, stepping back, stopping, and conversations that survive all of it.

use hadal::template::{Message, Template};
use hadal::tokenizer::Special;
use hadal::{Engine, Error, Finish, Options, Sampling};

fn engine(context: usize) -> Engine {
    let options = Options { context: Some(context), threads: Some(2), ..Options::default() };
    Engine::embedded(&options).expect("the embedded model")
}

fn greedy(max_tokens: usize) -> Sampling {
    Sampling { max_tokens: Some(max_tokens), ..Sampling::greedy() }
}

fn ids(engine: &Engine, text: &str) -> Vec<u32> {
    engine.tokenizer().encode(text, Special::Text).expect("ordinary text")
}

fn text(engine: &mut Engine, prompt: &str, settings: &Sampling) -> (String, Option<Finish>) {
    let mut generation = engine.generate(prompt, settings).expect("a prompt that fits");
    let text = generation.by_ref().map(|piece| piece.expect("text")).collect();
    (text, generation.finish())
}

#[test]
fn stepping_back_gives_the_same_bits_as_a_fresh_start() {
    let mut engine = engine(256);
    let (start, other, end) =
        (ids(&engine, "It is a truth"), ids(&engine, " of his own."), ids(&engine, " universally"));
    let mut whole = start.clone();
    whole.extend(&end);
    let expected = engine.prefill(&whole).expect("logits").to_vec();
    engine.truncate(start.len());
    engine.prefill(&other).expect("logits");
    engine.truncate(start.len());
    assert_eq!(engine.position(), start.len());
    assert_eq!(engine.tokens(), start);
    assert_eq!(engine.prefill(&end).expect("logits"), expected);
    engine.reset();
    assert_eq!(engine.position(), 0);
    assert_eq!(engine.prefill(&whole).expect("logits"), expected);
}

#[test]
fn a_prompt_that_was_computed_is_not_computed_again() {
    let mut engine = engine(256);
    let prompt = "She had been a very";
    let (first, _) = text(&mut engine, prompt, &greedy(8));
    let mut again = engine.generate(prompt, &greedy(8)).expect("a prompt that fits");
    let second: String = again.by_ref().map(|piece| piece.expect("text")).collect();
    assert_eq!(first, second);
    let stats = again.stats();
    assert_eq!(stats.cached_tokens, stats.prompt_tokens - 1);
    assert_eq!(stats.generated_tokens, 8);
}

#[test]
fn limits_are_errors_or_reasons() {
    let mut engine = engine(16);
    let long = vec![5; 17];
    assert!(matches!(engine.prefill(&long), Err(Error::Context { needed: 17, limit: 16 })));
    assert!(matches!(engine.generate_tokens(&long, &greedy(1)), Err(Error::Context { .. })));
    assert!(matches!(engine.prefill(&[]), Err(Error::Tokenizer(_))));
    assert!(matches!(engine.generate_tokens(&[], &greedy(1)), Err(Error::Tokenizer(_))));
    assert!(matches!(engine.prefill(&[2048]), Err(Error::Tokenizer(_))));
    assert_eq!(engine.position(), 0);

    let (answer, finish) = text(&mut engine, "It is", &greedy(1000));
    assert_eq!(finish, Some(Finish::Context));
    assert_eq!(engine.position(), 16);
    let (shorter, finish) = text(&mut engine, "It is", &greedy(3));
    assert_eq!(finish, Some(Finish::Length));
    assert!(answer.starts_with(&shorter));
    assert_eq!(text(&mut engine, "It is", &greedy(0)), (String::new(), Some(Finish::Length)));
}

#[test]
fn stop_strings_end_an_answer_before_they_show() {
    let mut engine = engine(256);
    let (whole, _) = text(&mut engine, "It is a truth", &greedy(40));
    let stop = whole.split_whitespace().nth(4).expect("five words").to_owned();
    let settings = Sampling { stop: vec![stop.clone()], ..greedy(40) };
    let (cut, finish) = text(&mut engine, "It is a truth", &settings);
    assert_eq!(finish, Some(Finish::Stop));
    assert_eq!(cut, whole[..whole.find(&stop).expect("it is there")]);
}

#[test]
fn an_interrupt_stops_an_answer_and_the_next_one_works() {
    let mut engine = engine(256);
    let interrupt = engine.interrupt();
    let mut generation = engine.generate("It is a truth", &greedy(200)).expect("a prompt that fits");
    generation.next().expect("a piece").expect("text");
    interrupt.stop();
    assert!(generation.by_ref().count() <= 1);
    assert_eq!(generation.finish(), Some(Finish::Interrupted));
    drop(generation);
    assert_eq!(text(&mut engine, "It is a truth", &greedy(5)).1, Some(Finish::Length));
}

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}she: {% endif %}";

#[test]
fn a_conversation_keeps_what_was_said() {
    let mut engine = engine(128);
    engine.set_template(Template::new(TEMPLATE).expect("a template"));
    let mut chat = engine.chat().system("Be kind.");
    let answer: String = chat.send("How do you do?", &greedy(10)).map(|piece| piece.expect("text")).collect();
    let said = |chat: &hadal::Chat| chat.messages().iter().map(|m| m.content.clone()).collect::<Vec<_>>();
    assert_eq!(said(&chat), ["Be kind.", "How do you do?", &answer]);

    // An answer dropped half way stays as far as it came.
    let mut reply = chat.send("Pray go on.", &greedy(10));
    let piece = reply.next().expect("a piece").expect("text");
    drop(reply);
    assert_eq!(said(&chat)[3..], ["Pray go on.", &piece]);
    assert!(chat.last_stats().expect("an answer was given").cached_tokens > 0);

    // An exchange that does not fit leaves no trace.
    let before = said(&chat);
    let mut reply = chat.send(&"too long ".repeat(200), &greedy(1));
    assert!(matches!(reply.next(), Some(Err(Error::Context { .. }))));
    assert!(reply.next().is_none());
    drop(reply);
    assert_eq!(said(&chat), before);
    drop(chat.send(&"too long ".repeat(200), &greedy(1)));
    assert_eq!(said(&chat), before);

    assert_eq!(chat.pop(), Some("Pray go on.".into()));
    assert_eq!(said(&chat), before[..3]);
    chat.clear();
    assert_eq!(said(&chat), ["Be kind."]);
    chat.set_messages(vec![Message::user("Who are you?")]);
    assert_eq!(said(&chat), ["Who are you?"]);
}

#[test]
fn a_model_without_template_does_not_chat() {
    let mut engine = engine(64);
    let mut chat = engine.chat();
    let mut reply = chat.send("Hello", &greedy(1));
    assert!(matches!(reply.next(), Some(Err(Error::Unsupported { what: "chat", .. }))));
    drop(reply);
    assert!(chat.messages().is_empty());
}

#[test]
fn options_out_of_range_are_named() {
    let wrong = |options: Options| match Engine::embedded(&options) {
        Err(Error::Option { name, .. }) => name,
        other => panic!("{options:?}: {other:?}"),
    };
    assert_eq!(wrong(Options { context: Some(0), ..Options::default() }), "--ctx-size");
    assert_eq!(wrong(Options { context: Some(513), ..Options::default() }), "--ctx-size");
    assert_eq!(wrong(Options { threads: Some(0), ..Options::default() }), "--threads");
    assert_eq!(wrong(Options { batch: 0, ..Options::default() }), "--batch-size");
}
