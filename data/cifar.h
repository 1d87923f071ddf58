// CIFAR-10 and CIFAR-100 in their binary format.
//
// A record is the label (CIFAR-100: coarse label, then fine label; the fine one is used) and 3072 bytes, the image as
// C x H x W = 3 x 32 x 32. Files:
//   cifar-10-batches-bin   data_batch_1.bin, data_batch_2.bin, ... (officially 5, of 10000 records); test_batch.bin;
//                          batches.meta.txt with one class name per line
//   cifar-100-binary       train.bin; test.bin; fine_label_names.txt
// Source: Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace owt {

enum class CifarKind { k10, k100 };

// Reads the whole split into memory. `dir` is the folder of the files or the folder above it. CIFAR-10's training files
// are read from number 1 until one is missing. Throws Error for missing files (it says where it looked), a gap in their
// numbers, an empty file, a size that is not a multiple of the record, a label out of range (with file, record and
// value), or a list of names of the wrong length. channels: 3, or 1 for the luma.
std::shared_ptr<Dataset> read_cifar(const std::string& dir, CifarKind kind, Split split, int64_t channels = 3);

// Whether read_cifar() finds files of the split.
bool has_cifar(const std::string& dir, CifarKind kind, Split split);

// A command line that downloads the official archive and unpacks it for read_cifar(dir, kind, ...).
std::string fetch_command(const std::string& dir, CifarKind kind);

// Writes the images [range.begin, range.end) of a set of 32 x 32 x 3 images atomically as one CIFAR-10 file.
void write_cifar10_file(const std::string& path, const Dataset& images, const Slice& range);
void write_cifar10_names(const std::string& dir, const std::vector<std::string>& names);

}  // namespace owt
