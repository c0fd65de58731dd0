//! Threads for what is too slow for the data path.

use crate::mailbox::LoopHandle;
use heddle_seam::language::{Job, Language};
use heddle_seam::node::JobId;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A pool of threads that run [`Job`]s; the loops of all shards share it. The last clone's drop waits
/// for the jobs that run, forgets those that wait, and ends the threads.
pub struct Workers<L: Language> {
    pool: Arc<Pool<L>>,
}

impl<L: Language> Clone for Workers<L> {
    fn clone(&self) -> Self {
        Workers { pool: self.pool.clone() }
    }
}

struct Pool<L: Language> {
    queue: JobQueue<L>,
    threads: Vec<JoinHandle<()>>,
}

/// Where jobs wait for a thread.
struct JobQueue<L: Language> {
    shared: Arc<Shared<L>>,
}

impl<L: Language> Clone for JobQueue<L> {
    fn clone(&self) -> Self {
        JobQueue { shared: self.shared.clone() }
    }
}

struct Shared<L: Language> {
    state: Mutex<State<L>>,
    changed: Condvar,
    tasks_max: usize,
}

struct State<L: Language> {
    tasks: VecDeque<Task<L>>,
    stopped: bool,
}

struct Task<L: Language> {
    id: JobId,
    job: L::Job,
    reply: LoopHandle<L>,
}

impl<L: Language> Workers<L> {
    /// Starts `threads` threads (at least one), for which at most `tasks_max` jobs wait. What does
    /// not fit runs on the loop that wants it, which slows that loop instead of growing the queue.
    pub fn start(threads: usize, tasks_max: usize) -> io::Result<Self> {
        let shared = Shared {
            state: Mutex::new(State { tasks: VecDeque::new(), stopped: false }),
            changed: Condvar::new(),
            tasks_max,
        };
        let mut pool = Pool { queue: JobQueue { shared: Arc::new(shared) }, threads: Vec::new() };
        for n in 0..threads.max(1) {
            let queue = pool.queue.clone();
            pool.threads
                .push(thread::Builder::new().name(format!("worker {n}")).spawn(move || queue.work())?);
        }
        Ok(Workers { pool: Arc::new(pool) })
    }

    /// One thread per core.
    pub fn start_per_core(tasks_max: usize) -> io::Result<Self> {
        Self::start(thread::available_parallelism().map_or(1, usize::from), tasks_max)
    }

    /// Queues a job whose result goes to `reply`, or gives it back when the queue is full.
    pub(crate) fn submit(&self, id: JobId, job: L::Job, reply: &LoopHandle<L>) -> Result<(), L::Job> {
        self.pool.queue.push(Task { id, job, reply: reply.clone() }).map_err(|task| task.job)
    }
}

impl<L: Language> Drop for Pool<L> {
    fn drop(&mut self) {
        let mut state = self.queue.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stopped = true;
        state.tasks.clear();
        drop(state);
        self.queue.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A worker that panicked has told the loop already.
            let _ = thread.join();
        }
    }
}

impl<L: Language> JobQueue<L> {
    fn push(&self, task: Task<L>) -> Result<(), Task<L>> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.tasks.len() >= self.shared.tasks_max {
            return Err(task);
        }
        state.tasks.push_back(task);
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }

    fn work(&self) {
        while let Some(Task { id, job, reply }) = self.next() {
            let mut guard = FaultOnPanic(Some(reply));
            let result = job.run();
            if let Some(reply) = guard.0.take() {
                reply.computed(id, result);
            }
        }
    }

    fn next(&self) -> Option<Task<L>> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State<L>| state.tasks.is_empty() && !state.stopped;
        let mut state = self.shared.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.tasks.pop_front()
    }
}

/// A job that panics is our bug. Its result will never come, so the loop that waits for it ends with
/// an error rather than leak the job's place for ever.
struct FaultOnPanic<L: Language>(Option<LoopHandle<L>>);

impl<L: Language> Drop for FaultOnPanic<L> {
    fn drop(&mut self) {
        if let Some(reply) = &self.0 {
            reply.fault("a worker thread panicked");
        }
    }
}
