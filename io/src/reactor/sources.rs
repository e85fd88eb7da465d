//! The registered sources of a reactor, each under the key with which the kernel reports its
//! events.
//!
//! A key is an index and a generation. An event may be on its way while its source is deregistered
//! and another source takes the index. The generation tells the two apart, so that no source is
//! marked ready by an event of another. Generations wrap around: on a machine of 64 bits after four
//! billion registrations, all of which would have to come within one turn.

use super::Source;
use slab::Slab;
use std::io;
use std::sync::Arc;

/// The number of bits of a key that hold the index.
const INDEX_BITS: u32 = if usize::BITS == 64 { 32 } else { 20 };

/// Every index is below this. Keys at the upper end belong to `sys/`.
const MOST: usize = (1 << INDEX_BITS) - 3;

fn index_of(key: usize) -> usize {
    key & ((1 << INDEX_BITS) - 1)
}

/// The sources, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Each source with its key.
    slab: Slab<(usize, Arc<Source>)>,
    /// The number of registrations so far: the generation of the last key.
    registrations: usize,
}

impl Sources {
    /// Adds a source. Returns its key and the source.
    pub(crate) fn insert(&mut self) -> io::Result<(usize, Arc<Source>)> {
        let entry = self.slab.vacant_entry();
        if entry.key() >= MOST {
            return Err(io::Error::other("too many descriptors in one runtime"));
        }
        self.registrations = self.registrations.wrapping_add(1);
        let key = self.registrations << INDEX_BITS | entry.key();
        let source = Arc::new(Source::new());
        entry.insert((key, source.clone()));
        Ok((key, source))
    }

    /// Returns the source with this key, unless it was removed.
    pub(crate) fn get(&self, key: usize) -> Option<&Source> {
        self.slab.get(index_of(key)).filter(|(of, _)| *of == key).map(|(_, source)| &**source)
    }

    /// Removes the source with this key.
    pub(crate) fn remove(&mut self, key: usize) -> Option<Arc<Source>> {
        self.get(key)?;
        Some(self.slab.remove(index_of(key)).1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.slab.iter().map(|(_, (_, source))| &**source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_for_a_source_that_is_gone_does_not_reach_its_successor() {
        let mut sources = Sources::default();
        let (first, _) = sources.insert().unwrap();
        assert!(sources.get(first).is_some());
        assert!(sources.remove(first).is_some());
        let (second, source) = sources.insert().unwrap();
        assert_eq!(index_of(first), index_of(second), "the place is used again");
        assert!(sources.get(first).is_none());
        assert!(sources.remove(first).is_none());
        assert!(std::ptr::eq(sources.get(second).unwrap(), &*source));
        assert_eq!(sources.iter().count(), 1);
    }

    #[test]
    fn keys_of_sources_are_none_of_the_poller() {
        let mut sources = Sources { registrations: usize::MAX - 1, ..Sources::default() };
        for _ in 0..3 {
            let (key, _) = sources.insert().unwrap();
            assert!(key < usize::MAX - 2 && sources.get(key).is_some(), "{key:#x}");
        }
    }
}
