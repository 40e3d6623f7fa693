//! A reader for one line of a part: a JSON array of scalars. It accepts all that JSON allows there, white space and
//! escapes included, as a part may be written by anyone.

use super::scalar::plain_length;

/// A place in a line.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// One scalar of the array.
#[derive(Debug, PartialEq)]
pub(super) enum Token<'s> {
    Null,
    Boolean(bool),
    /// The text of a number, as it stands.
    Number(&'s str),
    /// The content of a string, unescaped.
    String(&'s str),
}

impl Token<'_> {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Token::Null => "null",
            Token::Boolean(_) => "a boolean",
            Token::Number(_) => "a number",
            Token::String(_) => "a string",
        }
    }
}

/// Why a line is not an array of scalars.
pub(super) type SyntaxError = &'static str;

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Scanner { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips white space and takes this byte if it comes next.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        if self.peek() != Some(byte) {
            self.skip_space();
        }
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Whether only white space is left.
    pub(super) fn at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.text.len()
    }

    /// Takes the next scalar. `scratch` holds the content of a string that has escapes.
    pub(super) fn scalar<'s>(&mut self, scratch: &'s mut String) -> Result<Token<'s>, SyntaxError>
    where
        'a: 's,
    {
        self.skip_space();
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                Ok(Token::String(self.string(scratch)?))
            }
            Some(b'-' | b'0'..=b'9') => Ok(Token::Number(self.number()?)),
            Some(b'n') => self.word("null", Token::Null),
            Some(b't') => self.word("true", Token::Boolean(true)),
            Some(b'f') => self.word("false", Token::Boolean(false)),
            Some(b'[' | b'{') => Err("a value must not be an array or an object"),
            Some(_) => Err("this is not JSON"),
            None => Err("the line ends within the row"),
        }
    }

    fn word<'s>(&mut self, word: &str, token: Token<'s>) -> Result<Token<'s>, SyntaxError> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(token)
        } else {
            Err("this is not JSON")
        }
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            Err("a number lacks a digit")
        } else {
            Ok(())
        }
    }

    fn number(&mut self) -> Result<&'a str, SyntaxError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.at += 1;
            if let Some(b'0'..=b'9') = self.peek() {
                return Err("a number must not start with 0");
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    /// The rest of a string whose opening quote was taken.
    fn string<'s>(&mut self, scratch: &'s mut String) -> Result<&'s str, SyntaxError>
    where
        'a: 's,
    {
        let plain = self.plain();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(plain);
        }
        scratch.clear();
        scratch.push_str(plain);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(scratch);
                }
                Some(b'\\') => {
                    self.at += 1;
                    scratch.push(self.escape()?);
                }
                Some(_) => return Err("a string holds a raw control character"),
                None => return Err("the line ends within a string"),
            }
            scratch.push_str(self.plain());
        }
    }

    /// Takes what needs no escape.
    fn plain(&mut self) -> &'a str {
        let start = self.at;
        self.at += plain_length(&self.text.as_bytes()[start..]);
        &self.text[start..self.at]
    }

    /// The character that an escape stands for, whose backslash was taken.
    fn escape(&mut self) -> Result<char, SyntaxError> {
        const WRONG: SyntaxError = "a string has an escape that JSON does not know";
        let byte = self.peek().ok_or("the line ends within a string")?;
        self.at += 1;
        match byte {
            b'"' | b'\\' | b'/' => Ok(char::from(byte)),
            b'n' => Ok('\n'),
            b'r' => Ok('\r'),
            b't' => Ok('\t'),
            b'b' => Ok('\u{8}'),
            b'f' => Ok('\u{c}'),
            b'u' => {
                let first = self.hex().ok_or(WRONG)?;
                let is_high = (0xd800..0xdc00).contains(&first);
                let code = if is_high && self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    let second = self.hex().ok_or(WRONG)?;
                    // A second that is no low surrogate gives no character below.
                    let low = second.wrapping_sub(0xdc00);
                    if low < 0x400 {
                        0x10000 + ((first - 0xd800) << 10) + low
                    } else {
                        first
                    }
                } else {
                    first
                };
                char::from_u32(code).ok_or("a string has half of a surrogate pair")
            }
            _ => Err(WRONG),
        }
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
        self.at += 4;
        digits
            .iter()
            .try_fold(0, |n, b| Some(n * 16 + char::from(*b).to_digit(16)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// The line as a list of scalars, the way that a row is read.
    fn scan(line: &str) -> Result<Vec<Value>, SyntaxError> {
        let mut scanner = Scanner::new(line);
        let mut scratch = String::new();
        let mut values = Vec::new();
        if !scanner.take(b'[') {
            return Err("no array");
        }
        while !scanner.take(b']') {
            if !values.is_empty() && !scanner.take(b',') {
                return Err("no comma");
            }
            values.push(match scanner.scalar(&mut scratch)? {
                Token::Null => Value::Null,
                Token::Boolean(value) => value.into(),
                Token::Number(text) => serde_json::from_str(text).map_err(|_| "number")?,
                Token::String(text) => text.into(),
            });
        }
        if scanner.at_end() { Ok(values) } else { Err("more") }
    }

    #[test]
    fn what_json_allows_is_read() {
        for line in [
            "[]",
            " [ ] ",
            "[1]",
            "\t[ 1 ,\r\"a\" , null,true , false ]\r",
            "[-0,0.5,-1.5e+10,1E5,0e0]",
            r#"["\"\\\/\b\f\n\r\t\u0041\u00e4\ud83e\udd80","ä日🦀","\u0000"]"#,
        ] {
            assert_eq!(
                scan(line).unwrap(),
                serde_json::from_str::<Vec<Value>>(line).unwrap(),
                "{line}"
            );
        }
    }

    #[test]
    fn what_json_does_not_allow_is_refused() {
        for line in [
            "",
            "[",
            "]",
            "[1",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1]]",
            "[1] x",
            "1",
            "{}",
            "[[1]]",
            "[{}]",
            "[01]",
            "[-]",
            "[1.]",
            "[.5]",
            "[1e]",
            "[+1]",
            "[NaN]",
            "[nul]",
            "[truE]",
            "[\"]",
            "[\"\\\"]",
            "[\"\\x\"]",
            "[\"\\u00g0\"]",
            "[\"\\ud83e\"]",
            "[\"\\udd80\"]",
            "[\"\\ud83e\\u0041\"]",
            "[\"\\u12",
            "[\"a\u{1}b\"]",
            "['a']",
        ] {
            assert!(scan(line).is_err(), "{line}: {:?}", scan(line));
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_as_another_json_reader_does(line in r#"\[[ ,0-9.eE"\\untfalsrd8ä+-]{0,20}\]?"#) {
            let theirs = serde_json::from_str::<Vec<Value>>(&line).ok();
            let ours = scan(&line).ok();
            // serde_json refuses numbers beyond a double's range, which here are the column's matter.
            prop_assert_eq!(ours, theirs);
        }
    }
}
