module ashlar/plan9

go 1.13

require 9fans.net/go v0.0.4
