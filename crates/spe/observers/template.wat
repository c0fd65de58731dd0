;; An observer that records everything: the start of one of your own. `heddle observe load NAME template.wat`, then
;; `heddle observe watch FAMILY --every 100ms --with NAME`.
;;
;; `observe` is called for each observee at each look. What it hands to `record` in one call becomes one line. Memory stays
;; from look to look, a mebibyte at most; a look may cost 200,000 instructions. Nothing else of the program can be reached.
(module
  (import "spe" "index" (func $index (result i64)))
  (import "spe" "time_ns" (func $time_ns (result i64)))
  (import "spe" "fields" (func $fields (result i32)))
  (import "spe" "field" (func $field (param i32) (result i64)))
  (import "spe" "record" (func $record (param i64)))
  (func (export "observe")
    (local $place i32)
    (call $record (call $time_ns))
    (call $record (call $index))
    (loop $next
      (if (i32.lt_s (local.get $place) (call $fields))
        (then
          (call $record (call $field (local.get $place)))
          (local.set $place (i32.add (local.get $place) (i32.const 1)))
          (br $next))))))
