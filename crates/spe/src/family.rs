//! What can be observed: families of structures, and what all of a family look like at one moment.

/// How many fields a family has at most.
pub const FIELDS_MAX: usize = 24;
/// How many observees of a family a snapshot has at most: 4,096 rows of 24 fields, an index and a time are 832 KiB.
pub const ROWS_MAX: usize = 4_096;

/// A kind of structure. Each that exists is an observee of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, for people who look.
    pub name: &'static str,
    /// What an observee is, in a sentence.
    pub about: &'static str,
    /// What is to be seen of each; [`FIELDS_MAX`] at most.
    pub fields: &'static [Field],
}

/// Something about an observee: a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its unit; `1` of mere numbers.
    pub unit: &'static str,
}

/// One observee at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Its number, by which it is told from others of its family as long as it exists.
    pub index: u64,
    /// When it was looked at, in nanoseconds since some moment.
    pub time_ns: u64,
    /// Its fields, as the family has them.
    pub fields: &'a [i64],
}

/// Looks at observees of a family: at all that were asked for at one moment, or at one now and then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    fields: usize,
    indices: Vec<u64>,
    times_ns: Vec<u64>,
    values: Vec<i64>,
    left_out: u64,
}

impl Snapshot {
    /// One without observees.
    pub fn of(family: &Family) -> Self {
        let fields = family.fields.len().min(FIELDS_MAX);
        Snapshot { fields, indices: Vec::new(), times_ns: Vec::new(), values: Vec::new(), left_out: 0 }
    }

    /// Adds an observee. Of those beyond [`ROWS_MAX`] only the number is kept. Fields that the family does not have are
    /// left out, and those that are missing are zero.
    pub fn push(&mut self, time_ns: u64, index: u64, fields: &[i64]) {
        if self.indices.len() >= ROWS_MAX {
            self.left_out += 1;
            return;
        }
        self.indices.push(index);
        self.times_ns.push(time_ns);
        let end = self.values.len() + self.fields;
        self.values.extend(fields.iter().take(self.fields));
        self.values.resize(end, 0);
    }

    /// The observees, in the order in which they were added.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let row = |(place, index): (usize, &u64)| Row {
            index: *index,
            time_ns: self.times_ns[place],
            fields: &self.values[place * self.fields..(place + 1) * self.fields],
        };
        self.indices.iter().enumerate().map(row)
    }

    /// How many observees it has.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Whether there is no room for more, so that nobody need look at them.
    pub fn is_full(&self) -> bool {
        self.indices.len() >= ROWS_MAX
    }

    /// So many more observees, at most, are there and were not looked at.
    pub fn leave_out(&mut self, count: u64) {
        self.left_out += count;
    }

    /// How many observees found no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANES: Family = Family {
        name: "lanes",
        about: "a circuit's queue on a link",
        fields: &[Field { name: "cells", unit: "cells" }, Field { name: "link", unit: "1" }],
    };

    #[test]
    fn a_row_has_the_familys_fields() {
        let mut snapshot = Snapshot::of(&LANES);
        snapshot.push(100, 7, &[1, 2]);
        snapshot.push(100, 8, &[3]);
        snapshot.push(200, 9, &[4, 5, 6]);
        let rows = snapshot.rows().map(|row| (row.time_ns, row.index, row.fields.to_vec()));
        let wanted = [(100, 7, vec![1, 2]), (100, 8, vec![3, 0]), (200, 9, vec![4, 5])];
        assert_eq!(rows.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn a_snapshot_is_bounded() {
        let mut snapshot = Snapshot::of(&LANES);
        for index in 0..ROWS_MAX as u64 + 10 {
            snapshot.push(0, index, &[0, 0]);
        }
        assert_eq!((snapshot.rows().count(), snapshot.left_out()), (ROWS_MAX, 10));
    }
}
