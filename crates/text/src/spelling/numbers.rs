//! Numbers in digits, as Whisper's English normaliser writes them: `twenty one dollars` as `$21`,
//! `one oh one` as `101`.
//!
//! Words are read from left to right; a number grows as long as words continue it. Numbers have any
//! length: their digits are text.

use super::{Rule, replace};
use regex::{Captures, Regex};
use std::sync::LazyLock;

const ONES: [&str; 19] = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 8] =
    ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
/// Powers of ten: the first is 2, the others are multiples of 3.
const POWERS: [&str; 12] = [
    "hundred",
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
    "quintillion",
    "sextillion",
    "septillion",
    "octillion",
    "nonillion",
    "decillion",
];
const CURRENCIES: [char; 4] = ['£', '€', '$', '¢'];

/// The role of a word in a number.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// `zero` and its short forms.
    Zero,
    /// 1 to 19; with a suffix the number ends here, as in `first` and `fives`.
    Ones(usize, &'static str),
    /// 20 to 90.
    Tens(usize, &'static str),
    /// An exponent of ten.
    Power(usize, &'static str),
    /// A sign, written before the next number.
    Sign(char),
    /// A currency, written before the number that precedes it.
    Currency(char),
    Per,
    Percent,
    And,
    /// `double`, `triple`.
    Repeat(usize),
    Point,
}

fn role(word: &str) -> Option<Role> {
    let found = match word {
        "o" | "oh" | "zero" => Role::Zero,
        "zeroth" => Role::Ones(0, "th"),
        "first" => Role::Ones(1, "st"),
        "second" => Role::Ones(2, "nd"),
        "third" => Role::Ones(3, "rd"),
        "fifth" => Role::Ones(5, "th"),
        "twelfth" => Role::Ones(12, "th"),
        "sixes" => Role::Ones(6, "s"),
        "minus" | "negative" => Role::Sign('-'),
        "plus" | "positive" => Role::Sign('+'),
        "pound" | "pounds" => Role::Currency('£'),
        "euro" | "euros" => Role::Currency('€'),
        "dollar" | "dollars" => Role::Currency('$'),
        "cent" | "cents" => Role::Currency('¢'),
        "per" => Role::Per,
        "percent" => Role::Percent,
        "and" => Role::And,
        "double" => Role::Repeat(2),
        "triple" => Role::Repeat(3),
        "point" => Role::Point,
        _ => return counted(word),
    };
    Some(found)
}

/// The words of the three lists, with the endings of plurals and ordinals.
fn counted(word: &str) -> Option<Role> {
    let place = |words: &[&str], stem: &str| words.iter().position(|known| *known == stem);
    let power = |index: usize| if index == 0 { 2 } else { 3 * index };
    if let Some(index) = place(&ONES, word) {
        return Some(Role::Ones(index + 1, ""));
    }
    if let Some(index) = place(&TENS, word) {
        return Some(Role::Tens(10 * (index + 2), ""));
    }
    if let Some(index) = place(&POWERS, word) {
        return Some(Role::Power(power(index), ""));
    }
    for (ending, suffix) in [("ies", "s"), ("ieth", "th")] {
        let tens = word
            .strip_suffix(ending)
            .and_then(|stem| TENS.iter().position(|known| known.strip_suffix('y') == Some(stem)));
        if let Some(index) = tens {
            return Some(Role::Tens(10 * (index + 2), suffix));
        }
    }
    if let Some(stem) = word.strip_suffix('s') {
        if let Some(index) = place(&ONES, stem).filter(|index| *index != 5) {
            return Some(Role::Ones(index + 1, "s"));
        }
        return place(&POWERS, stem).map(|index| Role::Power(power(index), "s"));
    }
    // `eighth`: it has the t already.
    let ordinal = |index: &usize| *index > 2 && ![4, 11].contains(index);
    if let Some(index) =
        place(&ONES, word.strip_suffix('h')?).filter(|index| word.ends_with("th") && *index == 7)
    {
        return Some(Role::Ones(index + 1, "th"));
    }
    let stem = word.strip_suffix("th")?;
    if let Some(index) = place(&ONES, stem).filter(ordinal).filter(|index| *index != 7) {
        return Some(Role::Ones(index + 1, "th"));
    }
    place(&POWERS, stem).map(|index| Role::Power(power(index), "th"))
}

/// The number that is being read.
#[derive(Clone)]
enum Value {
    /// An integer, to which words can be added. Without leading zeros.
    Integer(String),
    /// Digits and points, to which words can only append.
    Text(String),
}

impl Value {
    fn text(&self) -> &str {
        match self {
            Self::Integer(text) | Self::Text(text) => text,
        }
    }

    /// The number with `ones` or `tens` after it: added if it ends in zeros, otherwise appended.
    fn and(self, number: usize) -> Self {
        let width = if number < 10 { 1 } else { 2 };
        match self {
            Self::Integer(digits) if digits == "0" => Self::Integer(number.to_string()),
            Self::Integer(digits) if digits.ends_with(&"0"[..].repeat(width)) => {
                Self::Integer(format!("{}{number:0width$}", &digits[..digits.len() - width]))
            }
            Self::Integer(text) | Self::Text(text) => Self::Text(format!("{text}{number}")),
        }
    }

    /// The number times a power of ten, if that is an integer. Only the last three digits of an
    /// integer are multiplied: the digits before already have their thousands.
    fn times(&self, power: usize) -> Option<String> {
        let (whole, fraction) = match self {
            Self::Integer(digits) => {
                let split = digits.len().saturating_sub(3);
                return Some(sum(
                    &format!("{}000", &digits[..split]),
                    &format!("{}{}", &digits[split..], "0".repeat(power)),
                ));
            }
            Self::Text(text) => text.split_once('.').unwrap_or((text, "")),
        };
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let fraction_digits = fraction.trim_end_matches('0');
        let is_number =
            is_digits(whole) && is_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
        (is_number && fraction_digits.len() <= power)
            .then(|| integer(&format!("{whole}{fraction_digits:0<power$}")))
    }
}

/// Digits without leading zeros.
fn integer(digits: &str) -> String {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { "0".into() } else { digits.into() }
}

/// The sum of two numbers in digits.
fn sum(one: &str, other: &str) -> String {
    let width = one.len().max(other.len()) + 1;
    let mut carry = 0;
    let mut digits: Vec<u8> = format!("{one:0>width$}")
        .bytes()
        .zip(format!("{other:0>width$}").bytes())
        .rev()
        .map(|(a, b)| {
            let digit = a - b'0' + b - b'0' + carry;
            carry = digit / 10;
            b'0' + digit % 10
        })
        .collect();
    digits.reverse();
    integer(&String::from_utf8_lossy(&digits))
}

/// The value of a word in digits.
fn numeric(word: &str) -> Option<Value> {
    let (whole, fraction) =
        word.split_once('.').map_or((word, None), |(whole, fraction)| (whole, Some(fraction)));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || fraction.is_some_and(|fraction| !is_digits(fraction)) {
        return None;
    }
    let is_integer = fraction.is_none_or(|fraction| fraction.bytes().all(|byte| byte == b'0'));
    Some(if is_integer { Value::Integer(integer(whole)) } else { Value::Text(word.into()) })
}

/// The text written so far, and the number being read.
#[derive(Default)]
struct Reading {
    out: Vec<String>,
    prefix: Option<char>,
    value: Option<Value>,
}

impl Reading {
    /// Writes a word after ending the number.
    fn put(&mut self, word: &str) {
        self.out.push(self.prefix.take().into_iter().chain(word.chars()).collect());
        self.value = None;
    }

    /// Writes the number, if there is one.
    fn put_value(&mut self) {
        if let Some(value) = self.value.take() {
            self.put(value.text());
        }
    }

    /// Ends the number with digits and a suffix.
    fn put_with(&mut self, value: &Value, suffix: &str) {
        self.put(&format!("{}{suffix}", value.text()));
    }

    /// The digits so far; empty for the integer 0.
    fn digits(&self) -> String {
        match &self.value {
            Some(Value::Integer(digits)) if digits == "0" => String::new(),
            Some(value) => value.text().to_owned(),
            None => String::new(),
        }
    }

    /// Reads a word between its neighbours; returns whether the next one belongs to it.
    fn read(&mut self, previous: Option<&str>, word: &str, next: Option<&str>) -> bool {
        let bare = word.strip_prefix(CURRENCIES);
        if let Some(number) = numeric(bare.unwrap_or(word)) {
            match self.value.take() {
                // Decimals, or the parts of an address.
                Some(Value::Text(text)) if text.ends_with('.') => {
                    self.value = Some(Value::Text(format!("{text}{word}")));
                    return false;
                }
                Some(value) => self.put(value.text()),
                None => {}
            }
            self.prefix = bare.and(word.chars().next()).or(self.prefix);
            self.value = Some(number);
            return false;
        }
        let Some(role_here) = role(word) else {
            self.put_value();
            self.put(word);
            return false;
        };
        let [before, after] = [previous, next].map(|word| word.and_then(role));
        let next_is_number = next.is_some_and(|word| numeric(word).is_some());
        match role_here {
            Role::Zero => self.value = Some(Value::Text(self.digits() + "0")),
            Role::Ones(number, suffix) => {
                let value = self.ones(number, before);
                self.grow(value, suffix);
            }
            Role::Tens(number, suffix) => {
                let value = self
                    .value
                    .take()
                    .map_or_else(|| Value::Integer(number.to_string()), |value| value.and(number));
                self.grow(value, suffix);
            }
            Role::Power(power, suffix) => self.multiply(power, suffix),
            Role::Sign(sign) => {
                self.put_value();
                match after.is_some() || next_is_number {
                    true => self.prefix = Some(sign),
                    false => self.put(word),
                }
            }
            Role::Currency(sign) => match &self.value {
                Some(_) => {
                    self.prefix = Some(sign);
                    self.put_value();
                }
                None => self.put(word),
            },
            Role::Percent | Role::Per => {
                let is_percent = role_here == Role::Percent || next == Some("cent");
                match self.value.take() {
                    Some(value) if is_percent => {
                        self.put_with(&value, "%");
                        return role_here == Role::Per;
                    }
                    Some(value) => {
                        self.put(value.text());
                        self.put(word);
                    }
                    None => self.put(word),
                }
            }
            Role::And | Role::Repeat(_) | Role::Point if after.is_none() && !next_is_number => {
                self.put_value();
                self.put(word);
            }
            Role::And => {
                if !matches!(before, Some(Role::Power(_, ""))) {
                    self.put_value();
                    self.put(word);
                }
            }
            Role::Repeat(times) => match after {
                Some(Role::Zero | Role::Ones(_, "")) => {
                    let digit = if let Some(Role::Ones(number, _)) = after { number } else { 0 };
                    self.value =
                        Some(Value::Text(self.digits() + &digit.to_string().repeat(times)));
                    return true;
                }
                _ => {
                    self.put_value();
                    self.put(word);
                }
            },
            Role::Point => {
                if next_is_number
                    || matches!(after, Some(Role::Zero | Role::Ones(_, "") | Role::Tens(_, "")))
                {
                    self.value = Some(Value::Text(self.digits() + "."));
                }
            }
        }
        false
    }

    /// The number with 0 to 19 after it.
    fn ones(&mut self, number: usize, before: Option<Role>) -> Value {
        match self.value.take() {
            None => Value::Integer(number.to_string()),
            // `twenty one` after other digits: the 0 becomes 1.
            Some(Value::Text(text)) if number < 10 && matches!(before, Some(Role::Tens(_, ""))) => {
                Value::Text(format!("{}{number}", &text[..text.len() - 1]))
            }
            Some(Value::Integer(text)) if matches!(before, Some(Role::Ones(_, ""))) => {
                Value::Text(format!("{text}{number}"))
            }
            Some(value) => value.and(number),
        }
    }

    /// Continues with a number, or ends it with a suffix.
    fn grow(&mut self, value: Value, suffix: &str) {
        match suffix {
            "" => self.value = Some(value),
            _ => self.put_with(&value, suffix),
        }
    }

    fn multiply(&mut self, power: usize, suffix: &str) {
        let alone = || Value::Integer(format!("1{}", "0".repeat(power)));
        let value = match &self.value {
            None => alone(),
            Some(value) => match value.times(power) {
                Some(digits) => Value::Integer(digits),
                None => {
                    self.put_value();
                    alone()
                }
            },
        };
        self.grow(value, suffix);
    }
}

/// Numbers in words as digits.
pub(super) fn in_digits(text: &str) -> String {
    static BOUNDARIES: LazyLock<[Rule; 3]> = LazyLock::new(|| {
        [
            Rule::new(r"([a-z])([0-9])", "$1 $2"),
            Rule::new(r"([0-9])([a-z])", "$1 $2"),
            // A suffix stays with its number.
            Rule::new(r"([0-9])\s+(st|nd|rd|th|s)\b", "$1$2"),
        ]
    });
    static CENTS: LazyLock<[Regex; 2]> = LazyLock::new(|| {
        [r"([€£$])([0-9]+) (?:and )?¢([0-9]{1,2})\b", r"[€£$]0.([0-9]{1,2})\b"]
            .map(|pattern| Regex::new(pattern).expect("a valid pattern"))
    });
    static ONE: LazyLock<Rule> = LazyLock::new(|| Rule::new(r"\b1(s?)\b", "one$1"));
    let mut text = with_halves(text);
    BOUNDARIES.iter().for_each(|rule| rule.apply(&mut text));
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut reading = Reading::default();
    let mut is_taken = false;
    for (index, word) in words.iter().enumerate() {
        let previous = index.checked_sub(1).map(|index| words[index]);
        is_taken = !is_taken && reading.read(previous, word, words.get(index + 1).copied());
    }
    reading.put_value();
    let mut text = reading.out.join(" ");
    let [with_cents, of_cents] = &*CENTS;
    replace(with_cents, &mut text, |found: &Captures<'_>| {
        format!("{}{}.{:0>2}", &found[1], &found[2], &found[3])
    });
    replace(of_cents, &mut text, |found: &Captures<'_>| format!("¢{}", integer(&found[1])));
    ONE.apply(&mut text);
    text
}

/// `and a half` after a number as `point five`.
fn with_halves(text: &str) -> String {
    static HALF: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\band\s+a\s+half\b").expect("a valid pattern"));
    let parts: Vec<&str> = HALF.split(text).collect();
    let mut written = Vec::new();
    for (index, part) in parts.iter().enumerate().filter(|(_, part)| !part.trim().is_empty()) {
        written.push(*part);
        if index + 1 < parts.len() {
            let last = part.split_whitespace().next_back().and_then(role);
            let is_number = matches!(
                last,
                Some(Role::Zero | Role::Ones(_, "") | Role::Tens(_, "") | Role::Power(_, ""))
            );
            written.push(if is_number { "point five" } else { "and a half" });
        }
    }
    written.join(" ")
}
