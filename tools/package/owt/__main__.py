from owt import main

main()
