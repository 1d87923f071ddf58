// Parsing and printing quantities.
#pragma once

#include <cstdint>
#include <string>

namespace owt {

// All functions throw Error with what was found and what was wanted. Numbers are positive and finite.

// "1Gbit", "100mbit", "1.5Gbit/s", "400MB/s", "25GB/s": bytes per second. Prefixes are powers of 1000; bits are spelt
// out, because b and B are mixed up too easily.
double parse_bandwidth(const std::string& text);
// "50us", "1.5ms", "0.2s", "900ns": seconds. Zero is allowed.
double parse_seconds(const std::string& text);
// "4096", "4K", "64M", "1G" (optionally followed by B or iB): bytes. Prefixes are powers of 1024.
int64_t parse_bytes(const std::string& text);

std::string bytes_text(int64_t bytes);  // a text for parse_bytes(): "4K", "64M", "1000"

}  // namespace owt
