//! Makes text from outside (file names, process names, error messages) safe to show: no control character
//! reaches a terminal or a page, where it could move the cursor, change colours or reverse the reading order.
//! Every renderer for people passes every string through this module; the formats for programs keep strings
//! as they are.

use std::borrow::Cow;

/// The text with every control and reordering character written as `\u{...}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and the marks by which Unicode text reverses its order of display.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn escape_sequences_and_reversed_text_are_spelled_out() {
        assert_eq!(visible("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(visible("two\nlines\t"), "two\\nlines\\t");
        assert_eq!(visible("exe\u{202e}txt"), "exe\\u{202e}txt");
    }

    #[test]
    fn ordinary_text_of_any_script_is_left_alone() {
        assert_eq!(visible("größe 尺寸 ± \\"), "größe 尺寸 ± \\");
    }
}
