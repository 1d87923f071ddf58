// The teacher of a run ([loss] distill): a trained network whose probabilities are targets of every training step
// (layers/loss/softmax_loss.h). It sees the images that the student sees, in evaluation mode and in the run's precision.
// Where the strategy splits dense layers, the teacher's are split too, and its activations travel as in an evaluation.
// Under strategies whose ranks have other layers or no rows (stages, separate servers) every rank has the whole teacher.
// Source: Hinton, Vinyals and Dean 2015, Distilling the Knowledge in a Neural Network (arXiv:1503.02531).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/batch.h"
#include "src/comm/communicator.h"
#include "src/recipe/settings.h"
#include "src/train/job.h"

namespace owt {

// Finds the teacher's recipe and weights (the checkpoint with the best top-1), if the settings have a teacher, and makes
// the folder in the recipe absolute. Throws Error if there is no such run, or if its network has another input or
// another number of classes. Collective over the processes of a launch; rank 0 reads.
void open_teacher(Settings& settings);
// Throws Error if the classes of the teacher, or what it subtracts from images and divides them by, differ from those of
// the job, whose data is open. Collective over the processes of a launch.
void check_teacher(const Job& job);
// The memory of a rank's teacher in bytes; 0: there is none.
int64_t teacher_bytes(const Settings& settings, const Plan& run, int rank);

class Teacher {
 public:
  // settings: with an open teacher. run: their plan. All arguments must outlive this. Collective.
  Teacher(const Settings& settings, const Plan& run, Communicator& comm);
  ~Teacher();

  // The batch with targets after each label: the teacher's in training, zeros in evaluation, where they do not count.
  // The batch must be ready on the stream, and so is the result, which is valid until the next call. Collective.
  const Batch& teach(const Batch& batch, Mode mode, const Stream& stream);

 private:
  struct Network;

  LossSettings loss_;  // of the student
  double scale_;       // of the teacher's logits
  std::unique_ptr<Network> network_;
  Tensor labels_;  // with targets, of the largest batch
  Batch taught_;
};

}  // namespace owt
