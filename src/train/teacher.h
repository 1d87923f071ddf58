// The teacher of a run ([loss] distill): a trained network whose probabilities are targets of every training step
// (layers/loss/softmax_loss.h). It sees the images that the student sees, in evaluation mode and in the run's
// precision. Where the strategy splits dense layers, the teacher's are split too, and its activations travel as in an
// evaluation. Else every rank has the whole teacher: under dp and its relatives, with stages or servers, and if layers
// of the teacher need other groups of rows. Source: Hinton, Vinyals and Dean 2015, Distilling the Knowledge in a Neural
// Network (arXiv:1503.02531).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "data/batch.h"
#include "src/comm/communicator.h"
#include "src/recipe/settings.h"
#include "src/train/job.h"

namespace owt {

// Finds the teacher's recipe and weights (the checkpoint with the best top-1), if the settings have a teacher, and
// makes the folder in the recipe absolute. With a hint, adds its layer to both models (src/net/hint.h). Throws Error if
// there is no such run, if its network has another input or another number of classes, and for a hint whose layers do
// not fit. Collective over the processes of a launch; rank 0 reads.
// student: the folder of a run that continues, which keeps its teacher's checkpoint; empty: a new run.
void open_teacher(Settings& settings, const std::string& student = "");
// Throws Error if the classes or the normalisation of images differ between the teacher and the job, whose data is
// open. Collective over the processes of a launch.
void check_teacher(const Job& job);
// Throws Error if the plan splits a layer of the hint: its rows must be the rank's own.
void check_hint(const Settings& settings, const Plan& run);
// The memory of a rank's teacher in bytes; 0: there is none.
int64_t teacher_bytes(const Settings& settings, const Plan& run, int rank);

class Teacher {
 public:
  // settings: with an open teacher. run: their plan. All arguments must outlive this. Collective.
  Teacher(const Settings& settings, const Plan& run, Communicator& comm);
  ~Teacher();

  // Prepares steps of the run with so many rows; otherwise the first such step does it. Collective.
  void prepare(int64_t step_rows);
  // The batch with targets after each label: the teacher's in training, zeros in evaluation, where they do not count.
  // If there is a hint, the batch also has the teacher's activation. The given batch must be ready on the stream, and
  // so is the result, which is valid until the next call. Collective.
  const Batch& teach(const Batch& batch, Mode mode, const Stream& stream);

 private:
  struct TrainedNet;

  LossSettings loss_;  // the student's
  double scale_;       // factor of the teacher's logits
  std::unique_ptr<TrainedNet> net_;
  std::map<int64_t, Tensor> labels_;  // rows with targets; key: rows of the step
  Batch taught_;
};

}  // namespace owt
