;; Records an observee whenever its first field is another than at the last look at it: its number, what the field is now,
;; by how much it has changed, and how long it had stayed, in nanoseconds. So changes are told with their times, and what
;; stays the same costs no record.
;;
;; It remembers 1,024 observees, by the last bits of their numbers: of two with the same bits the later one counts. Each
;; has 32 bytes: whether it was seen, its number, its field, and when that came.
(module
  (import "spe" "index" (func $index (result i64)))
  (import "spe" "time_ns" (func $time_ns (result i64)))
  (import "spe" "field" (func $field (param i32) (result i64)))
  (import "spe" "record" (func $record (param i64)))
  (memory 1)
  (func (export "observe")
    (local $at i32) (local $value i64) (local $is_known i32)
    (local.set $at (i32.wrap_i64 (i64.shl (i64.and (call $index) (i64.const 1023)) (i64.const 5))))
    (local.set $value (call $field (i32.const 0)))
    (local.set $is_known
      (i32.and
        (i64.ne (i64.load (local.get $at)) (i64.const 0))
        (i64.eq (i64.load offset=8 (local.get $at)) (call $index))))
    (if (i32.and (local.get $is_known) (i64.eq (i64.load offset=16 (local.get $at)) (local.get $value)))
      (then (return)))
    (if (local.get $is_known)
      (then
        (call $record (call $index))
        (call $record (local.get $value))
        (call $record (i64.sub (local.get $value) (i64.load offset=16 (local.get $at))))
        (call $record (i64.sub (call $time_ns) (i64.load offset=24 (local.get $at))))))
    (i64.store (local.get $at) (i64.const 1))
    (i64.store offset=8 (local.get $at) (call $index))
    (i64.store offset=16 (local.get $at) (local.get $value))
    (i64.store offset=24 (local.get $at) (call $time_ns))))
