pub struct DemoOptions;
pub fn demo(_: &DemoOptions) {}
