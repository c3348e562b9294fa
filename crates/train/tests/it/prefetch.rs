//! Prefetching.

use cognate_train::Prefetch;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn the_order_does_not_depend_on_timing() {
    let slow_producer = (0..40).inspect(|n| std::thread::sleep(Duration::from_micros(n % 7 * 100)));
    assert!(Prefetch::new(slow_producer, 3).eq(0..40));
    let slow_consumer =
        Prefetch::new(0..40, 3).inspect(|n| std::thread::sleep(Duration::from_micros(n % 7 * 100)));
    assert!(slow_consumer.eq(0..40));
}

#[test]
fn dropping_ends_the_thread() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let mut numbers = Prefetch::new((0_u64..).inspect(move |_| assert_eq!(*held, ())), 2);
    assert_eq!(numbers.next(), Some(0));
    drop(numbers);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
#[should_panic(expected = "item 2")]
fn a_panic_reaches_the_caller() {
    let items = Prefetch::new((0..4).inspect(|n| assert!(*n < 2, "item {n}")), 1);
    assert_eq!(items.count(), 4);
}
