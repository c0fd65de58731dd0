//! Threads for what is too slow for the data path.

use crate::mailbox::LoopHandle;
use heddle_proto::node::JobId;
use heddle_proto::work::Job;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A pool of threads that run [`Job`]s; the loops of all shards share it. The last clone's drop waits
/// for the jobs that run, forgets those that wait, and ends the threads.
#[derive(Clone)]
pub struct Workers {
    pool: Arc<Pool>,
}

struct Pool {
    queue: JobQueue,
    threads: Vec<JoinHandle<()>>,
}

/// Where jobs wait for a thread.
#[derive(Clone)]
struct JobQueue {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    tasks_max: usize,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    stopped: bool,
}

struct Task {
    id: JobId,
    job: Job,
    reply: LoopHandle,
}

impl Workers {
    /// Starts `threads` threads (at least one), for which at most `tasks_max` jobs wait. What does
    /// not fit runs on the loop that wants it, which slows that loop instead of growing the queue.
    pub fn start(threads: usize, tasks_max: usize) -> io::Result<Self> {
        let shared = Shared { state: Mutex::default(), changed: Condvar::new(), tasks_max };
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
    pub(crate) fn submit(&self, id: JobId, job: Job, reply: &LoopHandle) -> Result<(), Job> {
        self.pool.queue.push(Task { id, job, reply: reply.clone() }).map_err(|task| task.job)
    }
}

impl Drop for Pool {
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

impl JobQueue {
    fn push(&self, task: Task) -> Result<(), Task> {
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

    fn next(&self) -> Option<Task> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| state.tasks.is_empty() && !state.stopped;
        let mut state = self.shared.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.tasks.pop_front()
    }
}

/// A job that panics is our bug. Its result will never come, so the loop that waits for it ends with
/// an error rather than leak the job's place for ever.
struct FaultOnPanic(Option<LoopHandle>);

impl Drop for FaultOnPanic {
    fn drop(&mut self) {
        if let Some(reply) = &self.0 {
            reply.fault("a worker thread panicked");
        }
    }
}
