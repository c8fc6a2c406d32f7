# ranger or randomForest for peers_fits.py: files of float64 in, found.bin out. Prints the seconds of each stage, by the
# wall and of the processor with all threads, as JSON, and the most memory in bytes.
given <- commandArgs(TRUE)
folder <- given[1]; package <- given[2]
number <- as.integer(given[3:8])
rows <- number[1]; test_rows <- number[2]; features <- number[3]; trees <- number[4]; threads <- number[5]
set.seed(number[6])
classes <- given[9] == "classification"; defaults <- given[10] == "defaults"; also <- given[11]
suppressMessages(library(package, character.only = TRUE))

stages <- character()
timed <- function(name, work) {
  begin <- proc.time()
  result <- work()
  spent <- proc.time() - begin
  stages <<- c(stages, sprintf('"%s": [%f, %f]', name, spent[["elapsed"]], spent[["user.self"]] + spent[["sys.self"]]))
  result
}
values <- function(name, rows) {
  file <- file(file.path(folder, name), "rb")
  on.exit(close(file))
  readBin(file, "double", rows * features)
}
table <- function(name, rows) {
  matrix(values(name, rows), rows, features, byrow = TRUE, dimnames = list(NULL, paste0("x", seq_len(features))))
}
read <- timed("read", function() {
  target <- readBin(file.path(folder, "target.bin"), "double", rows)
  list(x = table("train.bin", rows), y = if (classes) factor(target) else target, test = table("test.bin", test_rows))
})
test <- read$test
# Both have the root as their default, but randomForest a third of the features for numbers.
third <- package == "randomForest" && !classes && defaults
mtry <- max(1, floor(if (third) features / 3 else sqrt(features)))
forest <- timed("grow", function() {
  if (package == "ranger") {
    ranger(x = read$x, y = read$y, num.trees = trees, mtry = mtry, num.threads = threads, seed = number[6],
           min.node.size = if (defaults) NULL else 1, quantreg = also == "quantiles",
           importance = if (also == "importance") "permutation" else "none")
  } else {
    randomForest(x = read$x, y = read$y, ntree = trees, mtry = mtry, importance = also == "importance")
  }
})
timed("write", function() saveRDS(forest, file.path(folder, "out.rds"), compress = FALSE))
if (also == "quantiles") {
  timed("also", function() predict(forest, test, type = "quantiles", quantiles = c(0.1, 0.5, 0.9), num.threads = threads))
}
found <- timed("predict", function() {
  if (package == "ranger") predict(forest, test, num.threads = threads)$predictions else predict(forest, test)
})
found <- if (classes) as.double(as.character(found)) else as.double(found)
writeBin(found, file.path(folder, "found.bin"))
status <- grep("VmHWM", readLines("/proc/self/status"), value = TRUE)
peak <- as.numeric(gsub("[^0-9]", "", status)) * 1024
cat("\n{", paste(c(stages, sprintf('"peak": %.0f', peak)), collapse = ", "), "}\n", sep = "")
