//! A table of objects by number.
#![forbid(unsafe_code)]

use super::refusal::Refusal;
use std::collections::BTreeMap;

/// Objects of one kind, numbered from `first` up to `first + capacity`.
///
/// Numbers are given out in turn, so that a number just freed is not the next one made: a stale number is
/// noticed.
#[derive(Debug)]
pub(crate) struct Table<T> {
    objects: BTreeMap<u32, T>,
    first: u32,
    capacity: u32,
    next: u32,
}

impl<T> Table<T> {
    pub(crate) fn new(first: u32, capacity: u32) -> Self {
        Self { objects: BTreeMap::new(), first, capacity, next: 0 }
    }

    pub(crate) fn insert(&mut self, object: T) -> Result<u32, Refusal> {
        if self.objects.len() >= self.capacity as usize {
            return Err(Refusal::TABLE_FULL);
        }
        loop {
            let number = self.first + self.next;
            self.next = (self.next + 1) % self.capacity;
            if let std::collections::btree_map::Entry::Vacant(free) = self.objects.entry(number) {
                free.insert(object);
                return Ok(number);
            }
        }
    }

    /// Gives out the lowest free number next.
    pub(crate) fn restart(&mut self) {
        self.next = 0;
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.objects.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.objects.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.objects.remove(&number)
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.objects.contains_key(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.objects.iter().map(|(number, object)| (*number, object))
    }

    pub(crate) fn clear(&mut self) {
        self.objects.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_in_turn() {
        let mut table = Table::new(8, 3);
        assert_eq!((table.insert('a'), table.insert('b')), (Ok(8), Ok(9)));
        assert_eq!(table.remove(8), Some('a'));
        assert_eq!((table.insert('c'), table.insert('d')), (Ok(10), Ok(8)));
        assert_eq!(table.insert('e'), Err(Refusal::TABLE_FULL));
        assert_eq!(table.remove(10), Some('c'));
        assert_eq!(table.remove(8), Some('d'));
        table.restart();
        assert_eq!((table.insert('c'), table.insert('d')), (Ok(8), Ok(10)));
        assert_eq!((table.len(), table.contains(9), table.get(10)), (3, true, Some(&'d')));
    }
}
