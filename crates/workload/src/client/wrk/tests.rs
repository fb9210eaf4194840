//! Valid and invalid output of wrk.

use super::{Output, parse};
use assay_quantity::Latency;

const GOOD: &str = "Running 2s test @ http://127.0.0.1:9911/
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.23ms  781.26us  14.33ms   94.51%
    Req/Sec     1.59k   110.58     1.71k    71.43%
  Latency Distribution
     50%  112.00us
     75%    1.46ms
     90%    1.81ms
     99%    2.50s
  3325 requests in 2.10s, 1.50MB read
Requests/sec:   1583.15
Transfer/sec:    804.03KB
";

#[test]
fn valid_output_is_parsed_with_its_units() {
    let latency = Latency {
        p50_ns: 112_000,
        p90_ns: 1_810_000,
        p99_ns: 2_500_000_000,
        p999_ns: None,
        max_ns: 14_330_000,
    };
    let output =
        Output { requests: 3325, elapsed_ns: 2_100_000_000, received_bytes: 3 * 512 * 1024, latency };
    assert_eq!(parse(GOOD), Ok(output));
}

#[test]
fn reported_failures_of_wrk_are_errors() {
    for complaint in
        ["Socket errors: connect 0, read 1, write 0, timeout 0", "Non-2xx or 3xx responses: 3325"]
    {
        let text = format!("{GOOD}  {complaint}\n");
        assert_eq!(parse(&text), Err(format!("it reported failures: {complaint}")));
    }
}

#[test]
fn a_missing_or_duplicate_line_is_an_error() {
    for line in ["Latency ", "50%", "90%", "99%", "3325 requests"] {
        let without: Vec<&str> = GOOD.lines().filter(|text| !text.trim().starts_with(line)).collect();
        // `Latency Distribution` starts like `Latency ` and is not required.
        assert!(parse(&without.join("\n")).is_err(), "{line}");
    }
    let twice = GOOD.replace("     90%    1.81ms", "     90%    1.81ms\n     90%    1.82ms");
    assert_eq!(parse(&twice), Err("its output has two lines '90% '".to_owned()));
}

#[test]
fn invalid_numbers_are_errors() {
    for (right, wrong) in [
        ("1.81ms", "nan"),
        ("1.81ms", "-1.81ms"),
        ("1.81ms", "1.81"),
        ("1.81ms", "1e9ms"),
        ("14.33ms", "ms"),
        ("1.50MB", "1.50Mb"),
        ("3325 requests", "-3325 requests"),
        ("3325 requests", "0 requests"),
    ] {
        let text = GOOD.replace(right, wrong);
        assert!(parse(&text).is_err(), "{wrong}");
    }
}
