//! What is played for what comes in, and when.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use voice::{
    AgentAudio, BackendInput, BackendOutput, Item, ItemKind, Overrides, Request, ResponseId, Role, Settings, TurnId,
};

use super::super::{Player, Script};
use crate::backend::{Backend, Wanted};

struct Stage {
    player: Player,
    start: Instant,
    now: Instant,
    wanted: Wanted,
    responses: u64,
    turns: u64,
    /// Outputs in short, with their time in ms; sound in a row is one.
    told: Vec<String>,
    sound: Vec<u8>,
}

impl Stage {
    fn new(yaml: &str) -> Self {
        let now = Instant::now();
        let player = Player::new(&Script::parse(Path::new("demo.yaml"), yaml).unwrap());
        let mut stage = Self {
            player,
            start: now,
            now,
            wanted: Wanted::All,
            responses: 0,
            turns: 0,
            told: Vec::new(),
            sound: Vec::new(),
        };
        stage.tell(BackendInput::Settings(Arc::default()));
        assert_eq!(stage.taken(), ["0 ready"]);
        stage
    }

    fn tell(&mut self, input: BackendInput) {
        self.player.handle(input);
        self.poll();
    }

    fn poll(&mut self) {
        while let Some(output) = self.player.poll(self.now, self.wanted) {
            let ms = (self.now - self.start).as_millis();
            let brief = self.brief(output);
            if brief != "sound" || self.told.last().is_none_or(|last| !last.ends_with("sound")) {
                self.told.push(format!("{ms} {brief}"));
            }
        }
    }

    fn brief(&mut self, output: BackendOutput) -> String {
        match output {
            BackendOutput::Ready => "ready".to_owned(),
            BackendOutput::Initiate => "initiate".to_owned(),
            BackendOutput::ResponseStarted { response } => format!("started {}", response.0),
            BackendOutput::Audio { audio: AgentAudio::Bytes { rate: 24_000, data }, .. } => {
                self.sound.extend(data);
                "sound".to_owned()
            }
            BackendOutput::Text { delta, words, .. } => match words.as_slice() {
                [word] => format!("text {delta:?} until {}", word.end / 48),
                _ => format!("text {delta:?}"),
            },
            BackendOutput::ToolCall { call, .. } => {
                let end = if call.is_final { " end" } else { "" };
                format!("call {} {} {}{end}", call.call_id, call.name, call.arguments)
            }
            BackendOutput::Usage { usage, .. } => format!("usage {}", usage.output_text),
            BackendOutput::ResponseDone { response } => format!("done {}", response.0),
            BackendOutput::ResponseIncomplete { reason, .. } => format!("incomplete {reason:?}"),
            BackendOutput::UserTranscript { turn, text, is_final } => {
                format!("heard {} {text:?}{}", turn.unwrap().0, if is_final { " all" } else { "" })
            }
            BackendOutput::Fault { response, failure, retryable: false } => {
                format!("fault {} {} {}", response.unwrap().0, failure.code, failure.message)
            }
            other => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while let Some(due) = self.player.poll_timeout(self.wanted).filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.poll();
        }
        self.now = until;
        self.poll();
    }

    fn respond(&mut self, request: Request) {
        self.responses += 1;
        self.tell(BackendInput::CreateResponse { response: ResponseId(self.responses), request });
    }

    fn ask(&mut self) -> Vec<String> {
        self.respond(Request::default());
        self.taken()
    }

    fn ask_in_writing(&mut self) -> Vec<String> {
        self.respond(Request { text_only: true, overrides: None });
        self.taken()
    }

    fn speak(&mut self) {
        self.turns += 1;
        self.tell(BackendInput::Commit { turn: TurnId(self.turns) });
    }

    fn item(&mut self, kind: ItemKind) {
        let item = Item { id: "item".to_owned(), previous: None, kind, json: String::new() };
        self.tell(BackendInput::Item(Box::new(item)));
    }

    fn write(&mut self, text: &str) {
        self.item(ItemKind::Message { role: Role::User, text: text.to_owned() });
    }

    fn result(&mut self, call_id: &str, output: &str) {
        self.item(ItemKind::ToolResult { call_id: call_id.to_owned(), output: output.to_owned() });
    }

    fn taken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }
}

#[test]
fn speech_comes_in_words_ahead_of_their_sound_as_fast_as_it_is_taken() {
    let mut stage =
        Stage::new("turns: [{reply: [{wait_ms: 250}, {say: {text: 'It is sunny.', audio_ms: 600}}, {say: Bye}]}]");
    assert_eq!(stage.ask(), ["0 started 1"]);
    stage.pass(1000);
    assert_eq!(
        stage.taken(),
        [
            "250 text \"It\" until 100",
            "250 sound",
            "250 text \" is\" until 250",
            "250 sound",
            "250 text \" sunny.\" until 600",
            "250 sound",
            "250 text \" Bye\" until 800",
            "250 sound",
            "250 done 1"
        ]
    );
    assert_eq!(stage.sound.len(), 800 * 24 * 2);
}

#[test]
fn paced_speech_is_given_in_its_own_time_and_is_always_the_same() {
    let yaml = "turns: [{repeat: true, reply: [{say: {text: slow, audio_ms: 2050, speed: 2}}]}]";
    let mut stage = Stage::new(yaml);
    stage.ask();
    stage.pass(500);
    assert_eq!(stage.sound.len(), 11 * 4800, "a chunk at once, and one each 50 ms");
    stage.pass(1000);
    assert_eq!(stage.taken().last().unwrap(), "1025 done 1");
    let first = std::mem::take(&mut stage.sound);
    stage.ask();
    stage.pass(2000);
    assert_eq!(stage.sound, first);
    let loud = first.as_chunks().0.iter().map(|pair| i16::from_le_bytes(*pair).unsigned_abs()).max();
    assert!(loud > Some(2000), "{loud:?}");
}

#[test]
fn sound_waits_while_enough_of_it_waits_and_is_due_no_more() {
    let mut stage = Stage::new("turns: [{hear: Well, reply: [{call: {tool: t}}, {say: a}]}]");
    stage.wanted = Wanted::Control;
    stage.speak();
    assert_eq!(stage.taken(), ["0 heard 1 \"Well\"", "0 heard 1 \"Well\" all"]);
    assert_eq!(stage.ask(), ["0 started 1", "0 call call_1 t {}", "0 call call_1 t {} end"]);
    assert_eq!(stage.player.poll_timeout(Wanted::Control), None);
    stage.wanted = Wanted::All;
    stage.poll();
    assert_eq!(stage.taken().last().unwrap(), "0 done 1");
}

#[test]
fn text_has_no_sound_and_the_same_pace() {
    let mut stage = Stage::new("turns: [{reply: [{say: {text: a bc, audio_ms: 400, speed: 1}}]}]");
    assert_eq!(stage.ask_in_writing(), ["0 started 1", "0 text \"a\""]);
    stage.pass(1000);
    assert_eq!(stage.taken(), ["100 text \" bc\"", "400 done 1"]);
    assert!(stage.sound.is_empty());
}

#[test]
fn a_call_comes_in_pieces_and_its_result_is_known_by_its_tool() {
    let mut stage = Stage::new(
        r#"
turns:
  - reply: [{call: {tool: weather, arguments: {city: Köln}, pieces: 3, piece_ms: 20}}, {call: {tool: clock, call_id: mine}}]
  - {when: {tool_result: weather, output: RAIN}, reply: [{say: {text: wet, audio_ms: 0}}]}
  - {when: {tool_result: clock}, reply: [{say: {text: late, audio_ms: 0}}]}
"#,
    );
    stage.ask();
    stage.pass(100);
    assert_eq!(
        stage.told,
        [
            "20 call call_1 weather y\":\"K",
            "40 call call_1 weather öln\"}",
            "40 call call_1 weather {\"city\":\"Köln\"} end",
            "40 call mine clock {}",
            "40 call mine clock {} end",
            "40 done 1"
        ]
    );
    stage.taken();
    stage.result("call_9", "rain");
    stage.result("mine", "12:00");
    assert_eq!(stage.ask()[1], "100 text \"late\" until 0");
    stage.result("call_1", "Rain, 9 C");
    assert_eq!(stage.ask()[1], "100 text \"wet\" until 0");
}

#[test]
fn turns_are_played_in_order_once_and_those_that_repeat_for_ever() {
    let say = |text: &str| format!("reply: [{{say: {{text: {text}, audio_ms: 0}}}}]");
    let mut stage = Stage::new(&format!(
        "turns: [{{when: {{text: Weather}}, {}}}, {{when: {{speech: true}}, {}}}, {{{}}}, {{repeat: true, {}}}]",
        say("sunny"),
        say("speech"),
        say("once"),
        say("again"),
    ));
    let said = |stage: &mut Stage| stage.ask()[1].split('"').nth(1).unwrap().to_owned();
    assert_eq!(said(&mut stage), "once");
    stage.speak();
    stage.write("the WEATHER, please");
    assert_eq!(said(&mut stage), "sunny");
    assert_eq!(said(&mut stage), "again", "what came was answered");
    stage.speak();
    assert_eq!(said(&mut stage), "speech");
    stage.write("weather");
    assert_eq!(said(&mut stage), "again");
}

#[test]
fn a_request_that_no_turn_fits_fails_and_says_what_came() {
    let mut stage = Stage::new("turns: [{when: {text: a}}]");
    stage.speak();
    stage.write("b");
    assert_eq!(
        stage.ask(),
        [
            "0 started 1",
            "0 fault 1 script_no_turn no turn of the script fits, or all that do were played: speech, 1 messages, 0 tool results"
        ]
    );
}

#[test]
fn responses_fail_end_early_and_hang_as_the_script_says() {
    let mut stage = Stage::new(
        r#"
turns:
  - reply: [usage: {output_text: 7}, fail: {code: overloaded, message: busy}]
  - reply: [incomplete: max_output_tokens]
  - reply: [hang]
  - reply: []
"#,
    );
    assert_eq!(stage.ask(), ["0 started 1", "0 usage 7", "0 fault 1 overloaded busy"]);
    assert_eq!(stage.ask(), ["0 started 2", "0 incomplete MaxOutputTokens"]);
    assert_eq!(stage.ask(), ["0 started 3"]);
    assert_eq!(stage.player.poll_timeout(Wanted::All), None);
    stage.tell(BackendInput::Cancel { response: ResponseId(3) });
    assert_eq!(stage.ask(), ["0 started 4", "0 done 4"]);
}

#[test]
fn a_cancelled_reply_says_no_more() {
    let mut stage = Stage::new("turns: [{repeat: true, reply: [{say: {text: long, audio_ms: 9000, speed: 1}}]}]");
    stage.ask();
    stage.pass(500);
    stage.taken();
    stage.tell(BackendInput::Cancel { response: ResponseId(1) });
    stage.pass(20_000);
    assert!(stage.taken().is_empty());
    assert_eq!(stage.ask()[0], "20500 started 2");
}

#[test]
fn the_instructions_of_session_and_response_choose_the_turn() {
    let mut stage =
        Stage::new("turns: [{when: {instructions: in brief}, repeat: true, reply: [hang]}, {repeat: true}]");
    assert_eq!(stage.ask().last().unwrap(), "0 done 1");
    let overrides = Overrides { instructions: Some("Say it IN BRIEF.".to_owned()), ..Overrides::default() };
    stage.respond(Request { text_only: false, overrides: Some(Box::new(overrides)) });
    assert_eq!(stage.taken(), ["0 started 2"]);
    stage.tell(BackendInput::Cancel { response: ResponseId(2) });
    let settings = Settings { instructions: "Answer in brief.".to_owned(), ..Settings::default() };
    stage.tell(BackendInput::Settings(Arc::new(settings)));
    assert_eq!(stage.ask(), ["0 started 3"]);
}

#[test]
fn the_model_speaks_first_when_the_user_is_there_unless_it_may_not() {
    let yaml = "turns: [{when: {start: true}, reply: [hang]}, {repeat: true}]";
    let mut stage = Stage::new(yaml);
    // It is refused: the next request is the client's.
    stage.tell(BackendInput::Connected);
    assert_eq!(stage.taken(), ["0 initiate"]);
    assert_eq!(stage.ask().last().unwrap(), "0 done 1");
    let mut stage = Stage::new(yaml);
    stage.player.handle(BackendInput::Connected);
    assert_eq!(stage.player.poll(stage.now, Wanted::All), Some(BackendOutput::Initiate));
    assert_eq!(stage.ask(), ["0 started 1"], "it hangs");
}

#[test]
fn the_users_words_are_those_of_the_turn_that_answers_told_once() {
    let mut stage = Stage::new(
        "turns: [{when: {speech: true}, hear: one two, reply: [hang]}, {when: {speech: true}, hear: three, repeat: true}]",
    );
    stage.speak();
    assert_eq!(stage.taken(), ["0 heard 1 \"one \"", "0 heard 1 \"two\"", "0 heard 1 \"one two\" all"]);
    stage.speak();
    assert!(stage.taken().is_empty(), "the same turn, not answered yet");
    stage.ask();
    for turn in [3, 4] {
        stage.speak();
        assert_eq!(stage.taken(), [format!("0 heard {turn} \"three\""), format!("0 heard {turn} \"three\" all")]);
        stage.ask();
    }
}

#[test]
fn a_session_of_words_alone_goes_through_the_turns_by_itself() {
    let mut stage = Stage::new("turns: [{hear: one}, {hear: two}, {when: {start: true}}]");
    let settings = Settings { transcribes_only: true, ..Settings::default() };
    stage.tell(BackendInput::Settings(Arc::new(settings)));
    stage.tell(BackendInput::Connected);
    stage.speak();
    stage.speak();
    stage.speak();
    assert_eq!(
        stage.taken(),
        ["0 heard 1 \"one\"", "0 heard 1 \"one\" all", "0 heard 2 \"two\"", "0 heard 2 \"two\" all"]
    );
}

#[test]
fn a_long_transcript_comes_in_few_pieces() {
    let words = "word ".repeat(3000);
    let mut stage = Stage::new(&format!("turns: [{{hear: \"{words}\"}}]"));
    stage.speak();
    let told = stage.taken();
    assert!((60..=65).contains(&told.len()), "{}", told.len());
}
