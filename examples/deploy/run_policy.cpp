// Runs an exported policy with ONNX Runtime, without Python.
//
//     gtrl export RUN --out policy.onnx
//     g++ -std=c++17 -O2 run_policy.cpp -I ONNXRUNTIME/include -L ONNXRUNTIME/lib -lonnxruntime -o run_policy
//     echo "0.1 0.2 0.3 0.4 1.0 2.0" | ./run_policy policy.onnx
//
// Each line of the input is an observation followed by a goal, in the units of the training data. Each line of the
// output is the action. A flow also takes noise, which is drawn here.

#include <onnxruntime_cxx_api.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

class Policy {
 public:
  explicit Policy(const std::string& path) : session_(environment_, path.c_str(), options()) {
    for (std::size_t i = 0; i < session_.GetInputCount(); ++i) {  // observation, goal and, for a flow, noise
      sizes_.push_back(session_.GetInputTypeInfo(i).GetTensorTypeAndShapeInfo().GetShape().at(1));
    }
  }

  std::size_t observation_size() const { return sizes_.at(0); }
  std::size_t goal_size() const { return sizes_.at(1); }

  // Returns the action for one observation and goal. Throws if a number is not finite: the model cannot.
  std::vector<float> operator()(std::vector<float> observation, std::vector<float> goal) {
    static const char* const inputs[] = {"observation", "goal", "noise"};
    static const char* const outputs[] = {"action"};
    std::vector<std::vector<float>> values = {std::move(observation), std::move(goal)};
    if (sizes_.size() == 3) values.push_back(noise(sizes_[2]));
    std::vector<Ort::Value> tensors;
    for (std::size_t i = 0; i < values.size(); ++i) tensors.push_back(row(values[i], sizes_[i], inputs[i]));
    auto results = session_.Run(Ort::RunOptions{nullptr}, inputs, tensors.data(), tensors.size(), outputs, 1);
    const float* action = results[0].GetTensorData<float>();
    return {action, action + results[0].GetTensorTypeAndShapeInfo().GetElementCount()};
  }

 private:
  static Ort::SessionOptions options() {
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(1);  // the networks are too small to share among threads
    return options;
  }

  // A batch of one row. The tensor refers to `values`, which must outlive it.
  Ort::Value row(std::vector<float>& values, std::int64_t size, const std::string& name) {
    if (static_cast<std::int64_t>(values.size()) != size) {
      throw std::invalid_argument("the " + name + " must have " + std::to_string(size) + " numbers");
    }
    for (float value : values) {
      if (!std::isfinite(value)) throw std::invalid_argument("the " + name + " has a number that is not finite");
    }
    const std::int64_t shape[] = {1, size};
    return Ort::Value::CreateTensor<float>(memory_, values.data(), values.size(), shape, 2);
  }

  std::vector<float> noise(std::int64_t size) {
    std::vector<float> drawn(size);
    for (float& value : drawn) value = normal_(generator_);
    return drawn;
  }

  Ort::Env environment_{ORT_LOGGING_LEVEL_WARNING, "policy"};
  Ort::Session session_;
  Ort::MemoryInfo memory_ = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  std::vector<std::int64_t> sizes_;
  std::mt19937 generator_{0};
  std::normal_distribution<float> normal_;
};

// Reads numbers, also "nan" and "inf", which `stream >> number` rejects.
std::vector<float> numbers_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<float> numbers;
  for (std::string word; words >> word;) numbers.push_back(std::stof(word));
  return numbers;
}

int main(int count, char** arguments) try {
  if (count != 2) throw std::invalid_argument("usage: run_policy policy.onnx < observations-and-goals.txt");
  Policy policy(arguments[1]);
  double microseconds = 0;
  int calls = 0;
  for (std::string line; std::getline(std::cin, line); ++calls) {
    const std::vector<float> numbers = numbers_of(line);
    if (numbers.size() != policy.observation_size() + policy.goal_size()) {
      throw std::invalid_argument("a line must have " + std::to_string(policy.observation_size()) + " + " +
                                  std::to_string(policy.goal_size()) + " numbers: observation and goal");
    }
    const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(policy.observation_size());
    const auto start = std::chrono::steady_clock::now();
    const std::vector<float> action = policy({numbers.begin(), middle}, {middle, numbers.end()});
    microseconds += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    std::cout.precision(9);
    for (std::size_t i = 0; i < action.size(); ++i) std::cout << (i ? " " : "") << action[i];
    std::cout << "\n";
  }
  if (calls) std::cerr << calls << " calls, " << microseconds / calls << " microseconds per call\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "run_policy: " << error.what() << "\n";
  return 2;
}
