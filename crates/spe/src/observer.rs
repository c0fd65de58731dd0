//! Observers: what turns what is seen into records, loaded while the program runs (dynamic callbacks of libspe, thesis,
//! section 4.2.4).
//!
//! An observer is a WebAssembly module. It exports a function `observe` without parameters and results, and may import,
//! from `spe`:
//!
//! | function | what it does |
//! |---|---|
//! | `index() -> i64` | the observee's number |
//! | `time_ns() -> i64` | when it was looked at, in nanoseconds since some moment |
//! | `fields() -> i32` | how many fields it has |
//! | `field(i32) -> i64` | one of them; zero of those that it has not |
//! | `record(i64)` | adds a number to the record that this look makes |
//!
//! That is all that it can reach. Its memory stays from look to look. It has [`FUEL_MAX`] of fuel a look, about as many
//! instructions; one that needs more, reaches for more memory than it may have, or fails otherwise ends.

use core::fmt;

use wasmi::{
    Caller, CompilationMode, Config, EnforcedLimits, Engine, Error, Linker, Module, Store, StoreLimits,
    StoreLimitsBuilder, TypedFunc,
};

use crate::family::{FIELDS_MAX, Row};
use crate::request::MODULE_BYTES_MAX;

/// How many numbers one look may record.
pub const RECORD_MAX: usize = 64;
/// What one look may cost, in instructions more or less: well below 10 ms in a program that is built for release. What
/// a call sets to zero is not charged, and bounded by how much calls may keep.
pub const FUEL_MAX: u64 = 200_000;
/// How much memory an observer may have: one mebibyte.
const MEMORY_BYTES_MAX: usize = 1 << 20;
/// How many entries its table may have.
const TABLE_MAX: usize = 1_024;
/// How deep its calls may go.
const RECURSION_MAX: usize = 64;
/// How much its calls may keep: 8 KiB, and twice that while they grow. A call sets all its locals to zero at no charge,
/// so that a look of calls alone costs some ten times what other instructions do.
const STACK_BYTES_MAX: usize = 8 << 10;

/// A module that was loaded, with its memory.
pub struct Observer {
    name: String,
    store: Store<State>,
    observe: TypedFunc<(), ()>,
}

/// What the module reaches.
struct State {
    limits: StoreLimits,
    time_ns: u64,
    index: u64,
    fields: [i64; FIELDS_MAX],
    count: usize,
    record: Vec<i64>,
}

/// Why a module was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(String);

/// Why an observer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended(String);

impl Observer {
    /// Loads a module. `name` is what it is called when it ends.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    pub fn load(name: &str, module: &[u8]) -> Result<Observer, Refused> {
        let refused =
            |why: &dyn fmt::Display| Refused(format!("the observer {name:?} cannot be loaded: {why}"));
        if module.len() > MODULE_BYTES_MAX {
            return Err(refused(&format_args!(
                "it has {} bytes, at most {MODULE_BYTES_MAX} are allowed",
                module.len()
            )));
        }
        let engine = Engine::new(&config());
        let module = Module::new(&engine, module).map_err(|error| refused(&error))?;
        let mut store = Store::new(&engine, State::new());
        store.limiter(|state| &mut state.limits);
        // Filling its memory costs, too.
        store.set_fuel(FUEL_MAX).map_err(|error| refused(&error))?;
        let linked = linker(&engine).map_err(|error| refused(&error))?;
        let instance = linked.instantiate_and_start(&mut store, &module).map_err(|error| refused(&error))?;
        let observe = instance.get_typed_func(&store, "observe");
        let observe = observe
            .map_err(|_| refused(&"it exports no function `observe` without parameters and results"))?;
        Ok(Observer { name: name.to_owned(), store, observe })
    }

    /// Shows it something, and returns the numbers that it records of that.
    ///
    /// # Errors
    /// What it did that it may not. It must not be used again then.
    pub fn observe(&mut self, row: &Row<'_>) -> Result<&[i64], Ended> {
        self.store.data_mut().show(row);
        let asked = self.store.set_fuel(FUEL_MAX).and_then(|()| self.observe.call(&mut self.store, ()));
        match asked {
            Ok(()) => Ok(&self.store.data().record),
            Err(error) => Err(Ended(format!("the observer {:?} was stopped: {}", self.name, why(&error)))),
        }
    }
}

/// Why a call failed, in the words of this page.
fn why(error: &Error) -> String {
    match error.as_trap_code() {
        Some(wasmi::TrapCode::OutOfFuel) => format!("one look took it more than {FUEL_MAX} of fuel"),
        _ => error.to_string(),
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .allow_start_fn(false)
        .ignore_custom_sections(true)
        .compilation_mode(CompilationMode::Eager)
        .enforced_limits(EnforcedLimits::strict())
        .wasm_multi_memory(false)
        .set_max_recursion_depth(RECURSION_MAX)
        .set_max_stack_height(STACK_BYTES_MAX)
        .set_max_cached_stacks(1);
    config
}

fn linker(engine: &Engine) -> Result<Linker<State>, Error> {
    let mut linker = Linker::new(engine);
    linker.func_wrap("spe", "index", |caller: Caller<'_, State>| caller.data().index as i64)?;
    linker.func_wrap("spe", "time_ns", |caller: Caller<'_, State>| caller.data().time_ns as i64)?;
    linker.func_wrap("spe", "fields", |caller: Caller<'_, State>| caller.data().count as i32)?;
    linker.func_wrap("spe", "field", |caller: Caller<'_, State>, place: i32| {
        let state = caller.data();
        usize::try_from(place).ok().and_then(|place| state.fields.get(place)).copied().unwrap_or(0)
    })?;
    linker.func_wrap("spe", "record", |mut caller: Caller<'_, State>, value: i64| -> Result<(), Error> {
        let record = &mut caller.data_mut().record;
        if record.len() >= RECORD_MAX {
            return Err(Error::new(format!("one look made a record of more than {RECORD_MAX} numbers")));
        }
        record.push(value);
        Ok(())
    })?;
    Ok(linker)
}

impl State {
    fn new() -> State {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MEMORY_BYTES_MAX)
            .table_elements(TABLE_MAX)
            .instances(1)
            .tables(1)
            .memories(1)
            .trap_on_grow_failure(true)
            .build();
        State { limits, time_ns: 0, index: 0, fields: [0; FIELDS_MAX], count: 0, record: Vec::new() }
    }

    fn show(&mut self, row: &Row<'_>) {
        self.time_ns = row.time_ns;
        self.index = row.index;
        self.fields = [0; FIELDS_MAX];
        self.count = row.fields.len().min(FIELDS_MAX);
        self.fields[..self.count].copy_from_slice(&row.fields[..self.count]);
        self.record.clear();
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Refused {}
impl core::error::Error for Ended {}

#[cfg(test)]
mod tests;
