//! [`Texts`]: a list of texts in one buffer.

/// A list of texts, one behind the other in one buffer. A vocabulary is a hundred thousand of a few bytes each, and as
/// many allocations would take several times the memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts {
    buffer: String,
    /// Where each text ends in `buffer`.
    ends: Vec<usize>,
}

impl Texts {
    /// An empty list with room for `texts` of `bytes` together.
    pub fn with_capacity(texts: usize, bytes: usize) -> Texts {
        Texts { buffer: String::with_capacity(bytes), ends: Vec::with_capacity(texts) }
    }

    /// Appends `text`.
    pub fn push(&mut self, text: &str) {
        self.buffer.push_str(text);
        self.ends.push(self.buffer.len());
    }

    /// Text `index`, if there are as many.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.buffer[start..end])
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The texts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.buffer[std::mem::replace(&mut start, end)..end])
    }

    /// Gives back memory that was reserved and not used.
    pub fn shrink_to_fit(&mut self) {
        self.buffer.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

impl<T: AsRef<str>> Extend<T> for Texts {
    fn extend<I: IntoIterator<Item = T>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push(text.as_ref()));
    }
}

impl<T: AsRef<str>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Texts {
        let mut all = Texts::default();
        all.extend(texts);
        all
    }
}

impl std::fmt::Debug for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        let texts = Texts::from_iter(["", "a", "", "ü歪", ""]);
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["", "a", "", "ü歪", ""]);
        let one_by_one: Vec<_> = (0..6).map(|index| texts.get(index)).collect();
        assert_eq!(one_by_one, [Some(""), Some("a"), Some(""), Some("ü歪"), Some(""), None]);
        assert_eq!((texts.len(), texts.iter().len(), texts.is_empty()), (5, 5, false));
        assert_eq!(format!("{texts:?}"), r#"["", "a", "", "ü歪", ""]"#);
        assert!(Texts::default().is_empty());
    }
}
