from ddtool.cli import main

main()
